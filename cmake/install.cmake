# `make install PREFIX=`: headers, both libraries, the command, data, foci.pc and a CMake
# package (find_package(foci), targets foci::foci and, where what it needs is found,
# foci::static).  Man pages and completions are in pages.cmake.
install(TARGETS foci_shared EXPORT foci)
install(TARGETS foci_static EXPORT foci_static)
if(TARGET foci)
    install(TARGETS foci)
endif()
if(TARGET foci_cuda)
    install(TARGETS foci_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(DIRECTORY include/foci DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES CHANGELOG.md CONTRIBUTING.md LICENSE README.md README.zh-CN.md
    DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY dev docs examples DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY data DESTINATION ${CMAKE_INSTALL_DATADIR}/foci)

# The prefix is found from where foci.pc lies, so the tree may be moved; folders that
# were given in full stay what they are.
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
    set(pc_prefix ${CMAKE_INSTALL_PREFIX})
else()
    file(RELATIVE_PATH pc_prefix /x/${CMAKE_INSTALL_LIBDIR}/pkgconfig /x)
    string(REGEX REPLACE "^(.*)/$" "\${pcfiledir}/\\1" pc_prefix ${pc_prefix})
endif()
foreach(name libdir includedir)
    string(TOUPPER CMAKE_INSTALL_${name} folder)
    set(pc_${name} \${prefix}/${${folder}})
    if(IS_ABSOLUTE ${${folder}})
        set(pc_${name} ${${folder}})
    endif()
endforeach()
list(TRANSFORM OpenMP_C_LIB_NAMES PREPEND -l OUTPUT_VARIABLE openmp_libs)
list(JOIN openmp_libs " " openmp_libs)
configure_file(cmake/foci.pc.in foci.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/foci.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/foci)
install(EXPORT foci NAMESPACE foci:: FILE fociTargets.cmake
    DESTINATION ${package_dir})
install(EXPORT foci_static NAMESPACE foci:: FILE fociStatic.cmake
    DESTINATION ${package_dir})
configure_package_config_file(cmake/fociConfig.cmake.in fociConfig.cmake
    INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(fociConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/fociConfig.cmake
    ${PROJECT_BINARY_DIR}/fociConfigVersion.cmake DESTINATION ${package_dir})
