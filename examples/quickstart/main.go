// Quickstart runs a few lines of untrusted Python behind a wall and prints what
// they print.
package main

import (
	"context"
	"fmt"
	"log"

	postern "github.com/populationgenomics/postern-go"
)

const code = `
import os, socket
print("hello from", os.getcwd(), "as user", os.getuid())
try:
    socket.create_connection(("1.1.1.1", 443))
except OSError as e:
    print("no network:", e.strerror)
`

func main() {
	sandbox, err := postern.New(postern.Profile{})
	if err != nil {
		log.Fatal(err)
	}
	defer sandbox.Close()
	result, err := sandbox.RunPython(context.Background(), code)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s%s", result.Stdout, result.Stderr)
}
