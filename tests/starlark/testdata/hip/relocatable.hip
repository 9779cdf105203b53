__global__ void relocatable() {}
