// verbs_driver: the null device, in a library that also brings the verbs double. A worker gets
// few variables of its environment, and so finds the double by its driver (tests/drivers/verbs).
extern "C" __attribute__((visibility("default"))) void gpurun_verbs_driver() {}
