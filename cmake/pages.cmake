# Man pages and completions, which the command prints from its tables of options.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS cli/verbs.def)
file(STRINGS cli/verbs.def verbs REGEX "^VERB\\(")

set(pages)
function(page file) # and the arguments of the command that prints it
    cmake_path(GET file PARENT_PATH dir)
    add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/${file}
        COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/${dir}
        COMMAND foci ${ARGN} > ${PROJECT_BINARY_DIR}/${file}
        DEPENDS foci VERBATIM)
    list(APPEND pages ${PROJECT_BINARY_DIR}/${file})
    set(pages ${pages} PARENT_SCOPE)
    cmake_path(GET file FILENAME name)
    install(FILES ${PROJECT_BINARY_DIR}/${file}
        DESTINATION ${CMAKE_INSTALL_DATADIR}/${dir})
endfunction()

page(man/man1/foci.1 --man)
foreach(verb ${verbs})
    string(REGEX REPLACE "VERB\\((.*)\\)" "\\1" verb ${verb})
    page(man/man1/foci-${verb}.1 --man ${verb})
endforeach()
page(bash-completion/completions/foci --completion bash)
page(zsh/site-functions/_foci --completion zsh)
add_custom_target(pages ALL DEPENDS ${pages})
