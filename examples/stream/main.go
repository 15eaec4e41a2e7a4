// Stream shows a guest's output while it is being written, and stops the guest
// gracefully when it has seen enough.
package main

import (
	"context"
	"fmt"
	"log"

	postern "github.com/populationgenomics/postern-go"
)

const script = `
trap 'echo "cleaning up"; exit 3' TERM
i=0
while :; do
	i=$((i + 1))
	echo "line $i"
	sleep 0.05
done
`

func main() {
	sandbox, err := postern.New(postern.Profile{})
	if err != nil {
		log.Fatal(err)
	}
	defer sandbox.Close()
	process, err := sandbox.StartBash(context.Background(), script)
	if err != nil {
		log.Fatal(err)
	}
	defer process.Close()

	chunks := 0
	for stream, chunk := range process.Output() {
		fmt.Printf("%s: %s", stream, chunk)
		if chunks++; chunks == 3 {
			process.Terminate(postern.DefaultGrace) // and read on: it may have last words
		}
	}
	status, err := process.Wait(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("exit status", status)
}
