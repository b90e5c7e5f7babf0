# Beside what phx_room makes of src/comm: MPI where it is installed, and the conformance suite as a
# library and as a program for launchers to start.

# Not under sanitizers: MPI's own races and leaks would drown ours.
if(NOT PHX_SANITIZE)
  set(MPI_CXX_SKIP_MPICXX ON)  # C calls only
  find_package(MPI COMPONENTS CXX QUIET)
endif()
if(MPI_CXX_FOUND)
  set_source_files_properties("${PROJECT_SOURCE_DIR}/src/comm/mpi_world.cpp" PROPERTIES
    COMPILE_DEFINITIONS "PHX_HAVE_MPI;OMPI_SKIP_MPICXX" INCLUDE_DIRECTORIES "${MPI_CXX_INCLUDE_DIRS}")
  target_link_libraries(phx_comm PRIVATE ${MPI_CXX_LIBRARIES})
  message(STATUS "MPI: ${MPI_CXX_VERSION} (${MPI_CXX_INCLUDE_DIRS})")
endif()

if(PHX_TESTS)
  add_library(phx_comm_facts STATIC "${PROJECT_SOURCE_DIR}/tests/comm/facts.cpp")
  target_include_directories(phx_comm_facts PUBLIC "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(phx_comm_facts PUBLIC phx_comm)
  add_executable(comm_facts "${PROJECT_SOURCE_DIR}/tests/comm/facts_main.cpp")
  target_link_libraries(comm_facts PRIVATE phx_comm_facts)

  target_link_libraries(comm_test PRIVATE phx_comm_facts)
  target_compile_definitions(comm_test PRIVATE PHX_COMM_FACTS="$<TARGET_FILE:comm_facts>")
  if(MPI_CXX_FOUND)
    target_compile_definitions(comm_test PRIVATE PHX_MPIRUN="${MPIEXEC_EXECUTABLE}")
  endif()
  add_dependencies(comm_test comm_facts)
endif()
