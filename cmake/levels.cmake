# Compiler flags of the CPU levels, by file name.  Each level's code is reached only
# after detection, so no other file may be compiled with its flags.
set(avx2_flags -mavx2 -mfma -mf16c)
set(avx512_flags ${avx2_flags} -mavx512f -mavx512bw -mavx512dq -mavx512vl)
set(bf16_flags ${avx512_flags} -mavx512bf16)
# Every CPU with tiles has these too.
set(vbmi_flags -mavx512vbmi -mavx512vbmi2 -mbmi2)
set(amx_flags ${bf16_flags} ${vbmi_flags} -mamx-tile -mamx-bf16)

foreach(level avx2 avx512 bf16 amx)
    set(source ${PROJECT_SOURCE_DIR}/src/kernels/${level}.c)
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
        set_source_files_properties(${source} PROPERTIES
            COMPILE_OPTIONS "${${level}_flags}")
    else()
        list(REMOVE_ITEM lib_sources ${source})
    endif()
endforeach()
