// Unpacks what @sparticuz/chromium holds: node unpack.cjs DIRECTORY FILE.br...
"use strict";
const { readFileSync, writeFileSync } = require("fs");
const { basename, join } = require("path");
const { brotliDecompressSync } = require("zlib");
const [directory, ...files] = process.argv.slice(2);
for (const file of files) {
  writeFileSync(join(directory, basename(file, ".br")), brotliDecompressSync(readFileSync(file)));
}
