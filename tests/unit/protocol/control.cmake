gpurun_test(rows_agreement_test unit ONE_THREAD SOURCES control/rows_agreement_test.cc
            LIBRARIES gpurun_protocol_control gpurun_driver_abi)
gpurun_test(record_forms_test unit ONE_THREAD SOURCES control/record_forms_test.cc LIBRARIES gpurun_protocol_control)
gpurun_test(control_test unit ONE_THREAD SOURCES control/control_test.cc LIBRARIES gpurun_protocol_control CapnProto::capnp)
add_test(NAME commit_test COMMAND ${Python3_EXECUTABLE} -B
         ${CMAKE_CURRENT_LIST_DIR}/control/commit_test.py ${CMAKE_SOURCE_DIR})
set_tests_properties(commit_test PROPERTIES LABELS unit TIMEOUT 120)
gpurun_test(secret_text_test unit ONE_THREAD SOURCES auth/secret_text_test.cc LIBRARIES gpurun_protocol_control)
gpurun_test(token_test unit SOURCES auth/token_test.cc LIBRARIES gpurun_protocol_token_file)
gpurun_test(session_identity_test unit ONE_THREAD SOURCES control/session_identity_test.cc LIBRARIES gpurun_protocol_control)
