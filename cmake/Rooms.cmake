# base < core < {kernels, comm} < ops < nn < parallel < transformer < models
# beside them   data: core   optim: parallel   checkpoint: optim   convert: models, checkpoint
# on top        train: all of these   cli: everything
phx_room(base PLAIN LINK fmt::fmt spdlog::spdlog nlohmann_json::nlohmann_json yaml-cpp Threads::Threads)
phx_room(core DEPENDS base)
phx_room(kernels DEPENDS core LINK OpenBLAS::OpenBLAS)
phx_room(comm DEPENDS core)
include(Comm)
phx_room(ops DEPENDS kernels comm)
phx_room(nn PLAIN DEPENDS ops)
phx_room(parallel PLAIN DEPENDS nn)
phx_room(transformer PLAIN DEPENDS parallel)
phx_room(models PLAIN DEPENDS transformer)
phx_room(data DEPENDS core LINK phx::pcre2 phx::simdjson phx::utf8proc phx::sentencepiece
         phx::sentencepiece_train phx::zstd phx::zlib)
phx_room(optim DEPENDS parallel)
phx_room(checkpoint DEPENDS optim LINK phx::xxhash phx::zlib)
phx_room(convert PLAIN DEPENDS models checkpoint)
phx_room(train PLAIN DEPENDS models optim data checkpoint convert)
phx_room(verify PLAIN DEPENDS train)
phx_room(plan PLAIN DEPENDS train)
phx_room(cli PLAIN DEPENDS verify plan)
target_compile_definitions(phx_cli PRIVATE PHX_VERSION="${PROJECT_VERSION}")

add_executable(phalanx src/cli/main.cpp)
target_link_libraries(phalanx PRIVATE phx_cli)
install(TARGETS phalanx RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

if(PHX_TESTS)  # everything the demo does, a few iterations long; what it learns by then is not looked at
  add_test(NAME demo.GoesFromACorpusToTextAndACurve COMMAND "${PROJECT_SOURCE_DIR}/scripts/demo.sh")
  set_tests_properties(demo.GoesFromACorpusToTextAndACurve PROPERTIES LABELS demo ENVIRONMENT
    "PHX_PROGRAM=$<TARGET_FILE:phalanx>;PHX_DEMO_OUT=${PROJECT_BINARY_DIR}/demo;PHX_DEMO_ITERS=4")
endif()
if(TARGET cli_test)  # runs the program as users do
  add_dependencies(cli_test phalanx)
  target_compile_definitions(cli_test PRIVATE PHX_BINARY="$<TARGET_FILE:phalanx>")
endif()
