# The kernels of the device, in a library of their own that libfoci opens when a device is
# asked for.  nvcc compiles them by itself, so that the rest needs to know nothing of it.
find_program(FOCI_NVCC nvcc HINTS /usr/local/cuda/bin $ENV{CUDA_HOME}/bin)
option(FOCI_CUDA "Build the kernels for CUDA devices, where nvcc is" ON)
set(FOCI_CUDA_ARCHS "80;90a" CACHE STRING "Architectures to compile for")

if(NOT FOCI_CUDA OR FOCI_SANITIZE OR FOCI_COVERAGE)
    return()
endif()
if(NOT FOCI_NVCC)
    message(STATUS "CUDA: nvcc was not found, libfoci_cuda.so is not built")
    return()
endif()

cmake_path(GET FOCI_NVCC PARENT_PATH cuda_bin)
cmake_path(GET cuda_bin PARENT_PATH cuda_home)
set(cuda_flags -O3 -std=c++17 -I${PROJECT_SOURCE_DIR}/src -Werror all-warnings
    -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra)
set(cuda_archs)
foreach(arch ${FOCI_CUDA_ARCHS})
    list(APPEND cuda_archs -gencode arch=compute_${arch},code=sm_${arch})
endforeach()

# Files of the Hopper family have instructions that sm_90a alone knows; hopper.c stands in
# for them where it is not compiled for.
file(GLOB cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.cu)
file(GLOB cuda_host CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.c)
if("90a" IN_LIST FOCI_CUDA_ARCHS)
    list(FILTER cuda_host EXCLUDE REGEX "/hopper\\.c$")
else()
    list(FILTER cuda_sources EXCLUDE REGEX "/hopper[^/]*\\.cu$")
endif()
set(cuda_objects)
foreach(source ${cuda_sources})
    cmake_path(GET source STEM name)
    set(archs ${cuda_archs})
    if(name MATCHES "^hopper")
        set(archs -gencode arch=compute_90a,code=sm_90a)
    endif()
    set(object ${PROJECT_BINARY_DIR}/cuda/${name}.o)
    add_custom_command(OUTPUT ${object}
        COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/cuda
        COMMAND ${FOCI_NVCC} ${cuda_flags} ${archs} -MD -MF ${object}.d
            -c ${source} -o ${object}
        DEPENDS ${source} DEPFILE ${object}.d VERBATIM
        COMMENT "nvcc ${name}.cu")
    list(APPEND cuda_objects ${object})
endforeach()

add_library(foci_cuda SHARED ${cuda_host} ${cuda_objects})
set_source_files_properties(${cuda_objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
target_include_directories(foci_cuda PRIVATE src)
target_include_directories(foci_cuda SYSTEM PRIVATE ${cuda_home}/include)
target_link_libraries(foci_cuda PRIVATE foci_flags
    ${cuda_home}/lib64/libcudart_static.a pthread rt ${CMAKE_DL_LIBS} stdc++)
target_link_options(foci_cuda PRIVATE -Wl,--exclude-libs,ALL -Wl,--no-undefined)
