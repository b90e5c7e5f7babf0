# base < core < {kernels, comm} < ops < nn < parallel < transformer < models
# beside them   data: core   optim: parallel   checkpoint: optim   convert: models, checkpoint
# on top        train: all of these   cli: everything
phx_room(base LINK fmt::fmt spdlog::spdlog nlohmann_json::nlohmann_json yaml-cpp Threads::Threads)
phx_room(core DEPENDS base)
phx_room(kernels DEPENDS core LINK OpenBLAS::OpenBLAS)
phx_room(comm DEPENDS core)
include(Comm)
phx_room(ops DEPENDS kernels comm)
phx_room(nn DEPENDS ops)
phx_room(parallel DEPENDS nn)
phx_room(transformer DEPENDS parallel)
phx_room(models DEPENDS transformer)
phx_room(data DEPENDS core LINK phx::pcre2 phx::simdjson phx::utf8proc phx::sentencepiece
         phx::sentencepiece_train phx::zstd phx::zlib)
phx_room(optim DEPENDS parallel)
phx_room(checkpoint DEPENDS optim LINK phx::xxhash)
phx_room(convert DEPENDS models checkpoint)
phx_room(train DEPENDS models optim data checkpoint convert)
phx_room(verify DEPENDS train)
phx_room(plan DEPENDS train)
phx_room(cli DEPENDS verify plan)
target_compile_definitions(phx_cli PRIVATE PHX_VERSION="${PROJECT_VERSION}")

add_executable(phalanx src/cli/main.cpp)
target_link_libraries(phalanx PRIVATE phx_cli)
install(TARGETS phalanx RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

if(TARGET cli_test)  # runs the program as users do
  add_dependencies(cli_test phalanx)
  target_compile_definitions(cli_test PRIVATE PHX_BINARY="$<TARGET_FILE:phalanx>")
endif()
