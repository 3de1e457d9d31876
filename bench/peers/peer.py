"""Whether PyTorch's bf16 runs on this machine, asked of a child process.

In virtual machines that hide CPUID leaf 0x1D its tiles end in SIGILL.  Capped below them
it runs; the report then says so.  This must be settled before PyTorch is imported.
"""
import os
import signal
import subprocess
import sys

CAP = ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

TRY = """
import torch
x = torch.ones(512, 512, dtype=torch.bfloat16)
x @ x
q = torch.ones(1, 2, 512, 64, dtype=torch.bfloat16, requires_grad=True)
torch.nn.functional.scaled_dot_product_attention(q, q, q).sum().backward()
"""


def died(env):
    """The name of the signal that ended it, or None."""
    done = subprocess.run([sys.executable, "-c", TRY], env=env, capture_output=True,
                          text=True)
    if done.returncode > 0:
        sys.exit(f"PyTorch cannot be tried:\n{done.stderr}")
    return signal.Signals(-done.returncode).name if done.returncode else None


def settle():
    """Caps PyTorch where it needs that; the sentence that the report has to say."""
    name, value = CAP
    if name in os.environ:
        return f"PyTorch capped by {name}={os.environ[name]}"
    why = died(os.environ)
    if not why:
        return None
    if again := died({**os.environ, name: value}):
        sys.exit(f"PyTorch's bf16 ends in {why} here, and in {again} with {name}={value}")
    os.environ[name] = value
    return f"PyTorch capped by {name}={value}, since its bf16 ends in {why} otherwise"
