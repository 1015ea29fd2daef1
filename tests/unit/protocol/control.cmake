gpurun_test(rows_agreement_test unit ONE_THREAD SOURCES rows_agreement_test.cc
            LIBRARIES gpurun_protocol_control gpurun_driver_abi)
gpurun_test(control_test unit ONE_THREAD SOURCES control_test.cc LIBRARIES gpurun_protocol_control CapnProto::capnp)
gpurun_test(secret_text_test unit ONE_THREAD SOURCES secret_text_test.cc LIBRARIES gpurun_protocol_control)
gpurun_test(token_test unit SOURCES token_test.cc LIBRARIES gpurun_protocol_token_file)
gpurun_test(session_identity_test unit ONE_THREAD SOURCES session_identity_test.cc LIBRARIES gpurun_protocol_control)
