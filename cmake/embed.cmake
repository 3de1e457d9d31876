# A file as an array of bytes, `const unsigned char NAME[]` and `const size_t NAME_bytes`, in a
# source that joins the list `embedded`.
function(embed file name)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(READ ${PROJECT_SOURCE_DIR}/${file} bytes HEX)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
    set(source ${PROJECT_BINARY_DIR}/embedded/${name}.c)
    file(CONFIGURE OUTPUT ${source} CONTENT "#include <stddef.h>
extern const unsigned char ${name}[];
extern const size_t        ${name}_bytes;
const unsigned char        ${name}[] = { ${bytes} };
const size_t               ${name}_bytes = sizeof ${name};
")
    set(embedded ${embedded} ${source} PARENT_SCOPE)
endfunction()
