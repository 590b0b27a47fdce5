# dbq.wasm, and test programs for WASI. Nothing is thrown: native/wasm/host.cpp ends a call that fails.
set(wasm_cpu -mcpu=generic+simd128+bulk_memory+sign_ext+nontrapping_fptoint)
set(wasm_flags ${wasm_cpu} -fignore-exceptions -include ${PROJECT_SOURCE_DIR}/native/wasm/threads.h)
target_compile_options(dbq_objects PRIVATE ${wasm_flags})

# Relaxed dot products: a module that works on the memory of dbq.wasm, which has it as a section.
add_library(relaxed_objects OBJECT native/wasm/relaxed.cpp)
target_link_libraries(relaxed_objects PRIVATE engine_options)
target_compile_options(relaxed_objects PRIVATE ${wasm_flags} ${wasm_cpu}+relaxed_simd)
add_executable(dbq_relaxed $<TARGET_OBJECTS:relaxed_objects>)
target_link_options(dbq_relaxed PRIVATE -nostdlib -s -Wl,--no-entry,--import-memory,--initial-memory=65536
                    -Wl,-z,stack-size=0 -Wl,--export=dbq_relaxed_words,--export=dbq_relaxed_dot
                    -Wl,--export=dbq_relaxed_kind)
set_target_properties(dbq_relaxed PROPERTIES SUFFIX .wasm)
set(relaxed_module ${PROJECT_BINARY_DIR}/dbq_relaxed.wasm)
set_source_files_properties(native/wasm/relaxed_section.cpp PROPERTIES OBJECT_DEPENDS ${relaxed_module}
                            COMPILE_DEFINITIONS DBQ_RELAXED_MODULE="${relaxed_module}")

set(exports malloc free dbq_load_memory dbq_free dbq_run dbq_profile dbq_input_shape dbq_outputs
    dbq_output_name dbq_output_shape dbq_output_size dbq_name dbq_metadata dbq_isa dbq_peak_memory dbq_layers
    dbq_layer_info dbq_version dbq_use_relaxed)
list(TRANSFORM exports PREPEND -Wl,--export=)
add_executable(dbq_wasm native/wasm/host.cpp native/wasm/exceptions.cpp native/wasm/relaxed_section.cpp
               $<TARGET_OBJECTS:dbq_objects>)
add_dependencies(dbq_wasm dbq_relaxed)
target_link_libraries(dbq_wasm PRIVATE engine_options)
target_compile_options(dbq_wasm PRIVATE ${wasm_flags})
target_link_options(dbq_wasm PRIVATE -mexec-model=reactor -s ${exports} -Wl,--export-table,--growable-table)
set_target_properties(dbq_wasm PROPERTIES OUTPUT_NAME dbq SUFFIX .wasm)

function(add_wasm_test name source)
  add_executable(${name} tests/native/${source}.cpp native/wasm/print_failure.cpp
                 native/wasm/exceptions.cpp $<TARGET_OBJECTS:dbq_objects> ${ARGN})
  set_target_properties(${name} PROPERTIES SUFFIX .wasm)
  target_link_libraries(${name} PRIVATE engine_options)
  target_compile_options(${name} PRIVATE ${wasm_flags})
endfunction()

if(DBQ_TESTS)
  foreach(test kernel_test logits)
    add_wasm_test(${test} ${test})
    foreach(kind relaxed dot)
      add_wasm_test(${test}_${kind} ${test} native/wasm/use_relaxed.cpp $<TARGET_OBJECTS:relaxed_objects>)
    endforeach()
    target_compile_definitions(${test}_dot PRIVATE DBQ_TEST_DOT)
  endforeach()
endif()
