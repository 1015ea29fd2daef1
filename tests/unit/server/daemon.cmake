gpurun_test(daemon_test unit SOURCES daemon_test.cc LIBRARIES gpurun_server_daemon gpurun_client_attach)
add_executable(spawned_worker spawned_worker.cc)
target_link_libraries(spawned_worker PRIVATE gpurun_options gpurun_server_daemon)
set_target_properties(spawned_worker PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
gpurun_test(gpurund_test unit SOURCES gpurund_test.cc LIBRARIES gpurun_client_attach TIMEOUT 120)
target_compile_definitions(gpurund_test PRIVATE GPURUND_PATH="$<TARGET_FILE:gpurund>"
                           WORKER_PATH="$<TARGET_FILE:spawned_worker>")
add_dependencies(gpurund_test gpurund spawned_worker)
