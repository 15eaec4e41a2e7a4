// Command streamhatch measures what the stream hatch and the connector cost.
//
//   - Throughput of a command that writes, and of one that reads, through the
//     hatch, against the same command on a plain socketpair. The clock starts
//     when the command has.
//   - The time from connecting to the end of a short command, against that of
//     making a socketpair and executing the command on it.
//   - The connector against socat, from a hatch and through an echo.
//
// The command on the socketpair gets a session of its own, as the hatch's has:
// the kernel shares out the processors by session (autogroup), and a command in
// the session of its reader would have less of them on a busy machine.
//
// Rounds of the two alternate, so that both see the same machine, and the ratio
// is the median of those of the rounds. 1 is as fast.
//
//	go run ./tests/bench/streamhatch [-rounds 30] [-size 512]
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/populationgenomics/postern-go/hatch/connector"
	"github.com/populationgenomics/postern-go/hatch/streamhatch"
)

var (
	rounds = flag.Int("rounds", 30, "rounds of each")
	size   = flag.Int("size", 512, "MiB to transfer in a round")
)

func main() {
	flag.Parse()
	if err := measure(); err != nil {
		log.Fatal(err)
	}
}

// A row compares two ways of doing the same.
type row struct {
	name       string
	bare, ours func() (time.Duration, error)
	latency    bool
}

func measure() error {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	connect := filepath.Join(dir, "connect")
	image, err := connector.Image()
	if err != nil {
		return err
	}
	if err := os.WriteFile(connect, image, 0o755); err != nil {
		return err
	}
	socat, err := exec.LookPath("socat")
	if err != nil {
		return err
	}

	writing := []string{"head", "-c", fmt.Sprint(*size << 20), "/dev/zero"}
	reading := []string{"cat"}
	readingOnly := []string{"sh", "-c", "echo ready; exec cat >/dev/null"}
	dialled := func(argv []string, transfer transfer) (func() (time.Duration, error), error) {
		h, err := serve(argv)
		if err != nil {
			return nil, err
		}
		return func() (time.Duration, error) { return throughHatch(h, transfer) }, nil
	}
	down, err := dialled(writing, download)
	if err != nil {
		return err
	}
	up, err := dialled(readingOnly, upload)
	if err != nil {
		return err
	}
	short, err := dialled([]string{"echo", "x"}, all(download))
	if err != nil {
		return err
	}
	source, err := serve(writing)
	if err != nil {
		return err
	}
	echo, err := serve(reading)
	if err != nil {
		return err
	}

	rows := []row{
		{"hatch: command writes", func() (time.Duration, error) { return throughPair(writing, download) }, down, false},
		{"hatch: command reads", func() (time.Duration, error) { return throughPair(readingOnly, upload) }, up, false},
		{"hatch: connect, run, end", func() (time.Duration, error) { return throughPair([]string{"echo", "x"}, all(download)) }, short, true},
		{"connector: download", func() (time.Duration, error) {
			return throughProgram(nil, socat, "-u", "UNIX-CONNECT:"+source.SocketPath(), "STDOUT")
		}, func() (time.Duration, error) { return throughProgram(nil, connect, source.SocketPath()) }, false},
		{"connector: echo", func() (time.Duration, error) {
			// Without -t it gives the other direction half a second after the end of one.
			return throughProgram(zeros(), socat, "-t600", "STDIO", "UNIX-CONNECT:"+echo.SocketPath())
		}, func() (time.Duration, error) { return throughProgram(zeros(), connect, echo.SocketPath()) }, false},
	}
	fmt.Printf("%d interleaved rounds of %d MiB; medians\n\n", *rounds, *size)
	fmt.Printf("%-32s %14s %14s %8s\n", "", "pair or socat", "postern", "ratio")
	for _, r := range rows {
		if err := r.run(); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
	}
	return nil
}

func (r row) run() error {
	var bare, ours, ratios []float64
	for i := range *rounds + 1 {
		var took [2]time.Duration
		for j := range 2 {
			k := (i + j) % 2 // who goes first alternates too
			var err error
			if took[k], err = []func() (time.Duration, error){r.bare, r.ours}[k](); err != nil {
				return err
			}
		}
		if i == 0 {
			continue // warming up
		}
		bare, ours = append(bare, r.value(took[0])), append(ours, r.value(took[1]))
		ratios = append(ratios, float64(took[0])/float64(took[1]))
	}
	unit := "MiB/s"
	if r.latency {
		unit = "ms"
	}
	fmt.Printf("%-32s %14.2f %14.2f %8.3f\n", r.name+" ["+unit+"]", median(bare), median(ours), median(ratios))
	return nil
}

func (r row) value(d time.Duration) float64 {
	if r.latency {
		return d.Seconds() * 1e3
	}
	return float64(*size) / d.Seconds()
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

func serve(argv []string) (*streamhatch.Hatch, error) {
	h, err := streamhatch.New(streamhatch.Exec(argv...), streamhatch.Config{})
	if err != nil {
		return nil, err
	}
	_, err = h.Serve()
	return h, err
}

// A transfer uses a connection to its end and returns when the clock starts,
// if that is not when connecting.
type transfer func(net.Conn) (from time.Time, err error)

// all lets the clock start when connecting.
func all(t transfer) transfer {
	return func(c net.Conn) (time.Time, error) {
		_, err := t(c)
		return time.Time{}, err
	}
}

func (t transfer) time(start time.Time, c net.Conn) (time.Duration, error) {
	from, err := t(c)
	if from.IsZero() {
		from = start
	}
	return time.Since(from), err
}

// throughHatch is one connection to a hatch.
func throughHatch(h *streamhatch.Hatch, t transfer) (time.Duration, error) {
	start := time.Now()
	c, err := net.Dial("unix", h.SocketPath())
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return t.time(start, c)
}

// throughPair is the same command on one end of a socketpair.
func throughPair(argv []string, t transfer) (time.Duration, error) {
	start := time.Now()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout = theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return 0, err
	}
	c, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		return 0, err
	}
	defer c.Close()
	took, err := t.time(start, c)
	return took, errors.Join(err, cmd.Wait())
}

var buffer = make([]byte, 256<<10)

func download(c net.Conn) (from time.Time, err error) {
	for {
		_, err := c.Read(buffer)
		if err == io.EOF {
			return from, nil
		}
		if err != nil {
			return from, err
		}
		if from.IsZero() {
			from = time.Now()
		}
	}
}

func upload(c net.Conn) (from time.Time, err error) {
	if _, err := c.Read(buffer); err != nil { // it is ready
		return from, err
	}
	from = time.Now()
	for left := *size << 20; left > 0; left -= len(buffer) {
		if _, err := c.Write(buffer[:min(left, len(buffer))]); err != nil {
			return from, err
		}
	}
	if err := c.(*net.UnixConn).CloseWrite(); err != nil {
		return from, err
	}
	_, err = download(c)
	return from, err
}

// throughProgram is a program between the hatch and pipes, as git has it.
func throughProgram(stdin io.Reader, argv ...string) (time.Duration, error) {
	start := time.Now()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin = stdin
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{out}, buffer)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return 0, fmt.Errorf("%w: %s", err, &stderr)
	}
	if n != int64(*size)<<20 {
		return 0, fmt.Errorf("%d bytes arrived through %s", n, argv[0])
	}
	return time.Since(start), nil
}

// zeros is what a round transfers.
func zeros() io.Reader { return io.LimitReader(zero{}, int64(*size)<<20) }

type zero struct{}

func (zero) Read(b []byte) (int, error) { return len(b), nil }
