/* Stands in for a toolkit's libascendcl.so: a library of that name with a function of its own. */
int aclrtSetDevice(int device);

int aclrtSetDevice(int device) { return device < 0; }
