# The kernels of the device, in a library of their own that libfoci opens when a device is
# asked for.  nvcc compiles them by itself, so that the rest needs to know nothing of it.
#
# FOCI_CUDA builds it.  Without, where nvcc is, the tests compile the kernels all the same,
# for one architecture each and with next to no optimisation, which takes a tenth of the
# time: foci_cuda_check in tests/, to be loaded but not to be used.
find_program(FOCI_NVCC nvcc HINTS /usr/local/cuda/bin $ENV{CUDA_HOME}/bin)
option(FOCI_CUDA "Build the kernels for CUDA devices, where nvcc is" OFF)
set(FOCI_CUDA_ARCHS "80;90a" CACHE STRING "Architectures to compile for")

if(FOCI_SANITIZE OR FOCI_COVERAGE OR CMAKE_CROSSCOMPILING)
    return()
endif()
if(NOT FOCI_NVCC)
    message(STATUS "CUDA: nvcc was not found, kernels for devices are not built")
    return()
endif()

cmake_path(GET FOCI_NVCC PARENT_PATH cuda_bin)
cmake_path(GET cuda_bin PARENT_PATH cuda_home)

# A library of objects in `folder`.  Files of the Hopper family have instructions that
# sm_90a alone knows; hopper.c stands in for them where it is not compiled for.
function(cuda_library target folder archs)
    set(flags -O3 -std=c++17 -I${PROJECT_SOURCE_DIR}/include
        -I${PROJECT_SOURCE_DIR}/src -Werror all-warnings
        -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra ${ARGN})
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.cu)
    file(GLOB host CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.c)
    set(general)
    foreach(arch ${archs})
        list(APPEND general -gencode arch=compute_${arch},code=sm_${arch})
    endforeach()
    if("90a" IN_LIST archs OR ARGN)
        list(FILTER host EXCLUDE REGEX "/hopper\\.c$")
    else()
        list(FILTER sources EXCLUDE REGEX "/hopper[^/]*\\.cu$")
    endif()
    set(objects)
    foreach(source ${sources})
        cmake_path(GET source STEM name)
        set(code ${general})
        if(name MATCHES "^hopper")
            set(code -gencode arch=compute_90a,code=sm_90a)
        endif()
        set(object ${folder}/${name}.o)
        add_custom_command(OUTPUT ${object}
            COMMAND ${CMAKE_COMMAND} -E make_directory ${folder}
            COMMAND ${FOCI_NVCC} ${flags} ${code} -MD -MF ${object}.d
                -c ${source} -o ${object}
            DEPENDS ${source} DEPFILE ${object}.d VERBATIM
            COMMENT "nvcc ${name}.cu for ${target}")
        list(APPEND objects ${object})
    endforeach()
    add_library(${target} SHARED ${host} ${objects})
    set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    target_include_directories(${target} PRIVATE
        ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
    target_include_directories(${target} SYSTEM PRIVATE ${cuda_home}/include)
    target_link_libraries(${target} PRIVATE foci_flags
        ${cuda_home}/lib64/libcudart_static.a pthread rt ${CMAKE_DL_LIBS} stdc++)
    target_link_options(${target} PRIVATE -Wl,--exclude-libs,ALL -Wl,--no-undefined)
endfunction()

if(FOCI_CUDA)
    cuda_library(foci_cuda ${PROJECT_BINARY_DIR}/cuda "${FOCI_CUDA_ARCHS}")
elseif(FOCI_TESTS)
    execute_process(COMMAND ${FOCI_NVCC} --help OUTPUT_VARIABLE help)
    if(help MATCHES "Ofast-compile") # CUDA 12.9
        cuda_library(foci_cuda_check ${PROJECT_BINARY_DIR}/tests/cuda "80"
            --Ofast-compile=max)
        set_target_properties(foci_cuda_check PROPERTIES
            LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    else()
        message(STATUS "CUDA: this nvcc is too old to check the kernels in good time")
    endif()
endif()
