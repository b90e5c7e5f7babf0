add_executable(cpu_attention ${CMAKE_CURRENT_LIST_DIR}/cpu_attention.cpp)
target_link_libraries(cpu_attention PRIVATE phx_ops)
