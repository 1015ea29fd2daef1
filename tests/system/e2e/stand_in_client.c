/* Stand-in client: an empty library in place of the client library, for plain programs. */
int gpurun_stand_in_client = 1;
