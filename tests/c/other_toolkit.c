/* Replaces a toolkit's libascendcl.so: a library with this name and another function. */
int aclrtSetDevice(int device);

int aclrtSetDevice(int device) { return device < 0; }
