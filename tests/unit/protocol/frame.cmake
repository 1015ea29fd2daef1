gpurun_test(protocol_frame_test unit SOURCES "${CMAKE_CURRENT_LIST_DIR}/frame_test.cc"
            LIBRARIES gpurun_protocol)
