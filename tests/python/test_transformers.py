"""foci in models of transformers: the same text as with PyTorch's attention, and other
mechanisms in its place."""
import copy

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from transformers import (BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM,
                          MistralConfig, MistralForCausalLM)

import foci
import foci.transformers

foci.transformers.register()
foci.transformers.register()  # twice does nothing more

SMALL = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 8,
         "bos_token_id": 1, "eos_token_id": None}
PAD = 0


def make(kind, seed=0, **more):
    torch.manual_seed(seed)
    if kind == "gpt2":
        config = GPT2Config(vocab_size=96, n_embd=64, n_layer=2, n_head=4, n_positions=128, bos_token_id=1, eos_token_id=None)
        return GPT2LMHeadModel._from_config(config, attn_implementation="sdpa").eval()
    if kind == "bert":
        config = BertConfig(vocab_size=96, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96)
        return BertForMaskedLM._from_config(config, attn_implementation="sdpa").eval()
    if kind == "mistral":
        config = MistralConfig(**SMALL, num_key_value_heads=4, sliding_window=8, **more)
        return MistralForCausalLM._from_config(config, attn_implementation="sdpa").eval()
    config = LlamaConfig(**SMALL, num_key_value_heads=2, **more)
    return LlamaForCausalLM._from_config(config, attn_implementation="sdpa").eval()


def prompt(side=None):
    ids = torch.randint(3, 96, (2, 12), generator=torch.Generator().manual_seed(4))
    valid = torch.ones_like(ids)
    if side == "left":
        valid[1, :5] = 0
    if side == "right":
        valid[1, 8:] = 0
    return {"input_ids": ids, "attention_mask": valid}


def generate(model, inputs, **options):
    return model.generate(**inputs, max_new_tokens=24, do_sample=False, pad_token_id=PAD, **options)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mistral"])
@pytest.mark.parametrize("side", [None, "left"])
def test_generation_equals_sdpa(kind, side):
    model, inputs = make(kind), prompt(side)
    want, logits = generate(model, inputs), model(**inputs).logits
    beams = generate(model, inputs, num_beams=3)
    model.set_attn_implementation("foci")
    seen = inputs["attention_mask"].bool()
    torch.testing.assert_close(model(**inputs).logits[seen], logits[seen], atol=2e-6, rtol=0)
    assert torch.equal(generate(model, inputs), want)
    assert torch.equal(generate(model, inputs, use_cache=False), want)
    assert torch.equal(generate(model, inputs, num_beams=3), beams)
    if kind != "mistral":  # whose cache forgets
        assert torch.equal(generate(model, inputs, past_key_values=foci.transformers.Cache()), want)
        assert torch.equal(generate(model, inputs, num_beams=3, past_key_values=foci.transformers.Cache()), beams)
        assert torch.equal(generate(model, inputs, cache_implementation="static"), want)


@pytest.mark.parametrize("side", [None, "left", "right"])
def test_bert_equals_sdpa(side):
    model, inputs = make("bert"), prompt(side)
    want = model(**inputs).logits
    model.set_attn_implementation("foci")
    torch.testing.assert_close(model(**inputs).logits, want, atol=2e-6, rtol=0)


def loss_and_gradients(model, inputs):
    model.zero_grad()
    labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
    loss = model(**inputs, labels=labels).loss
    loss.backward()
    return loss.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("kind", ["llama", "gpt2", "bert"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_training_equals_sdpa(kind, side):
    model, inputs = make(kind), prompt(side)
    want = loss_and_gradients(model, inputs)
    model.set_attn_implementation("foci")
    found = loss_and_gradients(model, inputs)
    torch.testing.assert_close(found, want, atol=2e-6, rtol=1e-4)


def test_bf16():
    model, inputs = make("llama").to(torch.bfloat16), prompt("left")
    want = model(**inputs).logits
    model.set_attn_implementation("foci")
    seen = inputs["attention_mask"].bool()
    torch.testing.assert_close(model(**inputs).logits[seen], want[seen], atol=2e-2, rtol=0)


def test_a_prompt_in_parts():
    model, inputs = make("llama"), prompt()
    model.set_attn_implementation("foci")
    want = model(inputs["input_ids"]).logits
    cache = transformers.DynamicCache()
    parts = [model(inputs["input_ids"][:, a:b], past_key_values=cache).logits for a, b in ((0, 5), (5, 9), (9, 12))]
    torch.testing.assert_close(torch.cat(parts, 1), want, atol=2e-6, rtol=0)


@pytest.mark.parametrize("spec", ["softmax", "local(window=4)", "linear"])
@torch.no_grad()
def test_a_cache_that_is_changed(spec):
    """Cropped, copied, put in another order: what follows is as without a cache."""
    model, ids = make("llama", initializer_range=0.2), prompt()["input_ids"]
    model.set_attn_implementation(f"foci|{spec}")
    want = model(ids, use_cache=False).logits
    cache = foci.transformers.Cache()

    def follow(end, step=1, rows=slice(None), cache=cache):
        while (at := cache.get_seq_length()) < end:
            part = model(ids[rows, at : at + step], past_key_values=cache).logits
            torch.testing.assert_close(part, want[rows, at : at + step], atol=1e-4, rtol=0)

    follow(5, 5)
    follow(8)
    assert cache.layers[0].state is not None
    model(ids[:, :2], past_key_values=cache)  # tokens that are taken back
    cache.crop(-2)
    follow(10)
    model(ids[:, :3], past_key_values=cache)
    cache.crop(-5)
    assert cache.get_seq_length() == 8
    follow(11, 3)  # by several rows
    follow(12)
    cache.crop(-4)
    twin = copy.deepcopy(cache)
    cache.reorder_cache(torch.tensor([1, 0]))
    for _ in range(4):
        at = cache.get_seq_length()
        part = model(ids.flip(0)[:, at : at + 1], past_key_values=cache).logits
        torch.testing.assert_close(part, want.flip(0)[:, at : at + 1], atol=1e-4, rtol=0)
    follow(12, cache=twin)
    cache.reset()
    follow(12, 4)


@pytest.mark.parametrize("spec", ["local(window=4)", "linear", "4*retention + 4*softmax", "bigbird(block=2)", "softmax cap(1)"])
def test_other_mechanisms(spec):
    model, inputs = make("llama", initializer_range=0.2), prompt()
    plain = model(**inputs).logits
    model.set_attn_implementation(f"foci|{spec}")
    assert model.config._attn_implementation == f"foci|{spec}"
    assert not torch.allclose(model(**inputs).logits, plain, atol=1e-4)
    # with keys and values kept, and without
    want = generate(model, inputs, use_cache=False)
    assert torch.equal(generate(model, inputs), want)
    assert torch.equal(generate(model, inputs, past_key_values=foci.transformers.Cache()), want)
    loss, gradients = loss_and_gradients(model, prompt("right"))
    assert loss.isfinite() and all(g.isfinite().all() for g in gradients)


def test_a_window_is_mistrals():
    """local sees what the model's own sliding window sees."""
    model, inputs = make("mistral"), prompt()
    want = model(**inputs).logits
    model.config.sliding_window = None
    model.set_attn_implementation("foci|local(window=7)")
    torch.testing.assert_close(model(**inputs).logits, want, atol=2e-6, rtol=0)


def test_made_with_a_spec():
    config = LlamaConfig(**SMALL, num_key_value_heads=2)
    model = LlamaForCausalLM._from_config(config, attn_implementation="foci|softmax scale(0.25)").eval()
    assert model(**prompt()).logits.isfinite().all()


def test_compile():
    model, inputs = make("llama"), prompt()
    model.set_attn_implementation("foci")
    with torch.no_grad():
        want = model(**inputs, use_cache=False).logits
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(**inputs, use_cache=False).logits, want, atol=2e-6, rtol=0)


def test_refusals():
    model = make("llama")
    with pytest.raises(foci.SpecError, match='unknown mechanism "locl"; the nearest is "local"'):
        model.set_attn_implementation("foci|locl(window=4)")
        model(**prompt())
    with pytest.raises(foci.ArgumentError, match="the spec is missing"):
        model.set_attn_implementation("foci|")
    with pytest.raises(ValueError, match="not supported"):
        model.set_attn_implementation("foco")
    q = torch.zeros(1, 2, 1, 8)
    with pytest.raises(foci.UnsupportedError, match="in pages"):  # which "sdpa" fetches by itself
        foci.transformers.attend("softmax", model, q, q, q, None, cache=object())
    model.set_attn_implementation("foci|linear")
    with pytest.raises(foci.Error, match="mask"):  # padding before a sequence
        model(**prompt("left"))
