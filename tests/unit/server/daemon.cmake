gpurun_test(daemon_test unit SOURCES daemon/daemon_test.cc LIBRARIES gpurun_server_daemon gpurun_client_attach)
gpurun_test(daemon_following_test unit SOURCES daemon/daemon_following_test.cc LIBRARIES gpurun_server_daemon gpurun_client_attach)
gpurun_test(daemon_extra_bulk_test unit SOURCES daemon/daemon_extra_bulk_test.cc LIBRARIES gpurun_server_daemon gpurun_client_attach)
gpurun_test(daemon_local_test unit SOURCES daemon/daemon_local_test.cc LIBRARIES gpurun_server_daemon gpurun_client_attach)
gpurun_test(daemon_spares_test unit SOURCES daemon/daemon_spares_test.cc LIBRARIES gpurun_server_daemon gpurun_client_attach)
gpurun_test(spare_workers_test unit ONE_THREAD SOURCES daemon/workers/spare_workers_test.cc LIBRARIES gpurun_server_daemon)
gpurun_test(spawn_messages_test unit ONE_THREAD SOURCES handover/spawn_messages_test.cc LIBRARIES gpurun_server_daemon)
gpurun_test(daemon_slow_client_test unit SOURCES daemon/daemon_slow_client_test.cc
            LIBRARIES gpurun_server_daemon gpurun_client_attach)
gpurun_test(lease_bounds_test unit ONE_THREAD SOURCES daemon/leases/lease_bounds_test.cc
            LIBRARIES gpurun_server_daemon gpurun_transport_testing)
add_executable(spawned_worker daemon/spawned_worker.cc)
target_link_libraries(spawned_worker PRIVATE gpurun_options gpurun_server_daemon gpurun_driver_abi)
set_target_properties(spawned_worker PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
gpurun_test(gpurund_test unit SOURCES daemon/gpurund_test.cc LIBRARIES gpurun_client_attach TIMEOUT 120)
target_compile_definitions(gpurund_test PRIVATE GPURUND_PATH="$<TARGET_FILE:gpurund>"
                           WORKER_PATH="$<TARGET_FILE:spawned_worker>")
add_dependencies(gpurund_test gpurund spawned_worker)
gpurun_test(gpurun_worker_test unit SOURCES worker/gpurun_worker_test.cc
            LIBRARIES gpurun_server_daemon gpurun_client_attach gpurun_client_state gpurun_protocol)
target_compile_definitions(gpurun_worker_test PRIVATE
  FAILING_DRIVER="$<TARGET_FILE:gpurun_failing_driver>"
  HEEDLESS_DRIVER="$<TARGET_FILE:gpurun_heedless_driver>"
  OLD_DRIVER="$<TARGET_FILE:gpurun_old_driver>"
  WORKER_PATH="$<TARGET_FILE:gpurun-worker>"
  NULL_DEVICE="${CMAKE_BINARY_DIR}/tests/drivers/null/libcuda.so.1")
add_dependencies(gpurun_worker_test gpurun-worker gpurun_null_device gpurun_failing_driver
                 gpurun_heedless_driver gpurun_old_driver)
gpurun_test(worker_refusal_test unit SOURCES worker/worker_refusal_test.cc
            LIBRARIES gpurun_server_daemon gpurun_client_attach gpurun_client_state gpurun_protocol
                      gpurun_transport_testing)
target_compile_definitions(worker_refusal_test PRIVATE
  WORKER_PATH="$<TARGET_FILE:gpurun-worker>"
  NULL_DEVICE="${CMAKE_BINARY_DIR}/tests/drivers/null/libcuda.so.1")
add_dependencies(worker_refusal_test gpurun-worker gpurun_null_device)
gpurun_test(exchange_test unit SOURCES exchange/exchange_test.cc LIBRARIES gpurun_server_exchange)
gpurun_test(device_ledgers_test unit ONE_THREAD SOURCES handover/device_ledgers_test.cc LIBRARIES gpurun_server_daemon)
gpurun_test(run_secret_test unit ONE_THREAD SOURCES daemon/users/run_secret_test.cc LIBRARIES gpurun_server_daemon)
gpurun_test(wiped_key_test unit ONE_THREAD SOURCES daemon/users/wiped_key_test.cc LIBRARIES gpurun_server_daemon)
gpurun_test(worker_uids_test unit ONE_THREAD SOURCES daemon/workers/worker_uids_test.cc LIBRARIES gpurun_server_daemon)
gpurun_test(users_test unit ONE_THREAD SOURCES daemon/users/users_test.cc LIBRARIES gpurun_server_daemon)
gpurun_test(daemon_users_test unit SOURCES daemon/daemon_users_test.cc LIBRARIES gpurun_server_daemon gpurun_client_attach)
gpurun_test(daemon_intruders_test unit SOURCES daemon/daemon_intruders_test.cc LIBRARIES gpurun_server_daemon gpurun_client_attach)
gpurun_test(daemon_flood_test unit SOURCES daemon/daemon_flood_test.cc LIBRARIES gpurun_server_daemon gpurun_client_attach)
gpurun_test(daemon_tls_test unit SOURCES daemon/daemon_tls_test.cc LIBRARIES gpurun_server_daemon gpurun_client_attach)
gpurun_test(worker_groups_test unit ONE_THREAD SOURCES daemon/workers/worker_groups_test.cc LIBRARIES gpurun_server_daemon)
