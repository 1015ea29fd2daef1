gpurun_test(session_data_test unit ONE_THREAD SOURCES session_data_test.cc LIBRARIES gpurun_client_attach)
gpurun_test(transports_test unit SOURCES "${CMAKE_CURRENT_LIST_DIR}/transports_test.cc" LIBRARIES gpurun_client_attach)
gpurun_test(silent_server_test unit SOURCES "${CMAKE_CURRENT_LIST_DIR}/silent_server_test.cc" LIBRARIES gpurun_client_attach)
gpurun_test(control_link_test unit SOURCES "${CMAKE_CURRENT_LIST_DIR}/control_link_test.cc" LIBRARIES gpurun_client_attach)
gpurun_test(attach_test unit SOURCES "${CMAKE_CURRENT_LIST_DIR}/attach_test.cc" LIBRARIES gpurun_client_attach)
gpurun_test(memory_board_test unit SOURCES memory_board_test.cc LIBRARIES gpurun_client_death_board)
gpurun_test(death_board_test unit SOURCES death_board_test.cc LIBRARIES gpurun_command)
gpurun_test(late_attach_test unit SOURCES "${CMAKE_CURRENT_LIST_DIR}/late_attach_test.cc"
            LIBRARIES gpurun_client_attach gpurun_client_session TIMEOUT 40)
