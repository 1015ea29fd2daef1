gpurun_test(session_data_test unit SOURCES session_data_test.cc LIBRARIES gpurun_client_attach)
gpurun_test(silent_server_test unit SOURCES "${CMAKE_CURRENT_LIST_DIR}/silent_server_test.cc" LIBRARIES gpurun_client_attach)
gpurun_test(attach_test unit SOURCES "${CMAKE_CURRENT_LIST_DIR}/attach_test.cc" LIBRARIES gpurun_client_attach)
gpurun_test(death_board_test unit SOURCES death_board_test.cc LIBRARIES gpurun_command)
