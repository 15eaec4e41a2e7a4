// Command emit writes the connector to standard output, so that a test can have
// that of another architecture made under an emulator.
package main

import (
	"log"
	"os"

	"github.com/populationgenomics/postern-go/hatch/connector"
)

func main() {
	image, err := connector.Image()
	if err != nil {
		log.Fatal(err)
	}
	if _, err := os.Stdout.Write(image); err != nil {
		log.Fatal(err)
	}
}
