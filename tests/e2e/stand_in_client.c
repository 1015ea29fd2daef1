/* Stands in for the client library where a program makes no CUDA call. */
int gpurun_stand_in_client = 1;
