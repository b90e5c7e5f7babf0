# base < core < kernels < ops < nn < transformer < models
# beside them   data: core   optim: nn   checkpoint: optim
# on top        train: all of these   cli: everything
phx_room(base LINK fmt::fmt spdlog::spdlog nlohmann_json::nlohmann_json yaml-cpp Threads::Threads)
phx_room(parallel DEPENDS base)
phx_room(transformer DEPENDS base)
phx_room(data DEPENDS base)
phx_room(optim DEPENDS base)
phx_room(train DEPENDS base)
phx_room(cli DEPENDS parallel transformer data optim train)
target_compile_definitions(phx_cli PRIVATE PHX_VERSION="${PROJECT_VERSION}")

add_executable(phalanx src/cli/main.cpp)
target_link_libraries(phalanx PRIVATE phx_cli)
install(TARGETS phalanx RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
