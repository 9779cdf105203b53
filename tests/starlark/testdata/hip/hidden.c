int hidden(void) { return 0; }
