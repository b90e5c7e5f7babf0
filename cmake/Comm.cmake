# Beside what phx_room makes of src/comm: the conformance suite as a library, and as a program for
# launchers to start.
if(PHX_TESTS)
  add_library(phx_comm_facts STATIC "${PROJECT_SOURCE_DIR}/tests/comm/facts.cpp")
  target_include_directories(phx_comm_facts PUBLIC "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(phx_comm_facts PUBLIC phx_comm)
  target_link_libraries(comm_test PRIVATE phx_comm_facts)
endif()
