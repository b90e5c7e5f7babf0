# base < core < kernels < ops < nn < transformer < models
# beside them   data: core   optim: nn   checkpoint: optim
# on top        train: all of these   cli: everything
phx_room(base LINK fmt::fmt spdlog::spdlog nlohmann_json::nlohmann_json yaml-cpp Threads::Threads)
phx_room(data DEPENDS base)
phx_room(train DEPENDS data)
