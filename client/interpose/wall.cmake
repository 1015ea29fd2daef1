# The wall that every entry point passes, and the process's one session. Needs client/session.
add_library(gpurun_interpose_wall STATIC ${CMAKE_CURRENT_LIST_DIR}/entry.cc
            ${CMAKE_CURRENT_LIST_DIR}/process.cc)
target_link_libraries(gpurun_interpose_wall PUBLIC gpurun_client_state PRIVATE gpurun_options)
