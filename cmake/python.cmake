# The Python package: python/foci, libfoci.so, the command, the sets that come with it, and
# _specs.py, a function for each mechanism.
#
# BUILD/python has all of it, by links: PYTHONPATH=build/python needs no installation.
# pyproject.toml builds the target `python` and installs the component of that name;
# FOCI_BUILT, a folder where all is built already, saves it from compiling.
file(GLOB python_sources CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/python/foci/*.py ${PROJECT_SOURCE_DIR}/python/foci/py.typed)
set(python_maker ${PROJECT_SOURCE_DIR}/tools/python_specs.py)

# Files that are compiled or made, below a build folder.
function(install_python built)
    install(FILES ${built}/python/foci/_specs.py
        DESTINATION foci COMPONENT python EXCLUDE_FROM_ALL)
    install(PROGRAMS ${built}/libfoci.so.${PROJECT_VERSION} RENAME libfoci.so
        DESTINATION foci COMPONENT python EXCLUDE_FROM_ALL)
    # the kernels of devices, where they were compiled (-DFOCI_CUDA=ON)
    install(PROGRAMS ${built}/libfoci_cuda.so OPTIONAL
        DESTINATION foci COMPONENT python EXCLUDE_FROM_ALL)
    install(PROGRAMS ${built}/foci
        DESTINATION foci/bin COMPONENT python EXCLUDE_FROM_ALL)
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/data
        DESTINATION foci/bin COMPONENT python EXCLUDE_FROM_ALL)
endfunction()

if(FOCI_BUILT)
    add_custom_target(python)
    install_python(${FOCI_BUILT})
elseif(TARGET foci AND PYTHON3 AND NOT CMAKE_CROSSCOMPILING)
    set(python_tree ${PROJECT_BINARY_DIR}/python/foci)
    file(MAKE_DIRECTORY ${python_tree}/bin)
    foreach(source ${python_sources})
        cmake_path(GET source FILENAME name)
        file(CREATE_LINK ${source} ${python_tree}/${name} SYMBOLIC)
    endforeach()
    file(CREATE_LINK ${PROJECT_BINARY_DIR}/libfoci.so ${python_tree}/libfoci.so SYMBOLIC)
    file(CREATE_LINK ${PROJECT_BINARY_DIR}/libfoci_cuda.so ${python_tree}/libfoci_cuda.so
        SYMBOLIC)
    file(CREATE_LINK ${PROJECT_BINARY_DIR}/foci ${python_tree}/bin/foci SYMBOLIC)
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/data ${python_tree}/bin/data SYMBOLIC)
    add_custom_command(OUTPUT ${python_tree}/_specs.py
        COMMAND ${PYTHON3} ${python_maker} $<TARGET_FILE:foci> ${python_tree}/_specs.py
        DEPENDS foci ${python_maker} VERBATIM
        COMMENT "Python functions of mechanisms")
    add_custom_target(python ALL DEPENDS foci_shared foci ${python_tree}/_specs.py)
    if(TARGET foci_cuda)
        add_dependencies(python foci_cuda)
    endif()
    install_python(${PROJECT_BINARY_DIR})
endif()
