# What `dbq page` needs in a wheel: dbq.js, and dbq.wasm where zig, its compiler, is installed.
install(FILES web/dbq.js DESTINATION dbq/web)
include(cmake/find_zig.cmake)
if(EXISTS "${DBQ_ZIG}")
  set(wasm_build ${PROJECT_BINARY_DIR}/wasm)
  add_custom_target(dbq_page ALL
    COMMAND ${CMAKE_COMMAND} -S ${PROJECT_SOURCE_DIR} -B ${wasm_build} -G ${CMAKE_GENERATOR}
            -DCMAKE_MAKE_PROGRAM=${CMAKE_MAKE_PROGRAM} -DDBQ_ZIG=${DBQ_ZIG}
            -DCMAKE_TOOLCHAIN_FILE=${PROJECT_SOURCE_DIR}/cmake/wasm.cmake
    COMMAND ${CMAKE_COMMAND} --build ${wasm_build} --target dbq_wasm
    VERBATIM)
  install(FILES ${wasm_build}/dbq.wasm DESTINATION dbq/web)
else()
  message(WARNING "dbq.wasm is not built, so `dbq page` will not work: pip install ziglang before this")
endif()
