# Man pages and completions.  The command prints its own from its tables of options;
# foci(3) is made from the public headers, where there is a Python.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS cli/verbs.def)
file(STRINGS cli/verbs.def verbs REGEX "^VERB\\(")
file(GLOB public_headers CONFIGURE_DEPENDS include/foci/*.h)

# A file below share/ of the prefix, what it depends on, and the command that prints it.
function(page file depends)
    cmake_path(GET file PARENT_PATH dir)
    set(path ${PROJECT_BINARY_DIR}/share/${file})
    add_custom_command(OUTPUT ${path}
        COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/share/${dir}
        COMMAND ${ARGN} > ${path}
        DEPENDS ${depends} VERBATIM)
    install(FILES ${path} DESTINATION ${CMAKE_INSTALL_DATADIR}/${dir})
    set(pages ${pages} ${path} PARENT_SCOPE)
endfunction()

page(man/man1/foci.1 foci foci --man)
foreach(verb ${verbs})
    string(REGEX REPLACE "VERB\\((.*)\\)" "\\1" verb ${verb})
    page(man/man1/foci-${verb}.1 foci foci --man ${verb})
endforeach()
page(bash-completion/completions/foci foci foci --completion bash)
page(zsh/site-functions/_foci foci foci --completion zsh)
if(PYTHON3)
    set(manual ${PROJECT_SOURCE_DIR}/tools/manual.py)
    page(man/man3/foci.3 "${manual};${public_headers}"
        ${PYTHON3} ${manual} man)

    # A page for each function.
    set(functions ${PROJECT_BINARY_DIR}/share/functions)
    add_custom_command(OUTPUT ${functions}.made
        COMMAND ${CMAKE_COMMAND} -E rm -rf ${functions}
        COMMAND ${PYTHON3} ${manual} pages ${functions}
        COMMAND ${CMAKE_COMMAND} -E touch ${functions}.made
        DEPENDS ${manual} ${public_headers} VERBATIM)
    install(DIRECTORY ${functions}/ DESTINATION ${CMAKE_INSTALL_DATADIR}/man/man3)
    list(APPEND pages ${functions}.made)
endif()
add_custom_target(pages ALL DEPENDS ${pages})
