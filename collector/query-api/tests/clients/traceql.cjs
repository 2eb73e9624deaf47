// Prints for each line of standard input whether Grafana's grammar of TraceQL accepts it.
const { parser } = require("@grafana/lezer-traceql");

const lines = require("fs").readFileSync(0, "utf8").split("\n");
const isTaken = (text) => {
  let isTaken = true;
  parser.parse(text).iterate({
    enter(node) {
      isTaken = isTaken && !node.type.isError;
    },
  });
  return isTaken;
};
console.log(JSON.stringify(lines.map(isTaken)));
