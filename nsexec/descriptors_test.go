//go:build linux

package nsexec_test

import (
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/nsexec"
	"golang.org/x/sys/unix"
)

// A file may have any number here, whatever number it is to have there: also
// one that is in the way of another.
func TestFilesInEveryOrder(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		out := host(t, orderProbe, nil)
		if out != "done" {
			t.Error(out)
		}
	})
}

var orderProbe = guest.Probe("files in every order", func([]string) {
	report, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 100)
	if err != nil {
		panic(err)
	}
	say := os.NewFile(uintptr(report), "report")
	if _, err := guest.Try(guest.Shell("true")); err != nil { // the runtime's own descriptors come first
		panic(err)
	}
	// Pipes whose write ends are descriptors 0 to 4, all in use one way or
	// another by the time of the launch.
	const n = 5
	var readers [n]int
	var writers [n]*os.File
	for i := range n {
		r, w, err := os.Pipe()
		if err != nil {
			panic(err)
		}
		fd := int(w.Fd())
		readers[i], writers[i] = int(r.Fd()), w
		defer r.Close()
		unix.SetNonblock(readers[i], true)
		if fd != i && i < 3 {
			if err := unix.Dup3(fd, i, unix.O_CLOEXEC); err != nil {
				panic(err)
			}
			w.Close()
			writers[i] = os.NewFile(uintptr(i), "low")
		}
	}
	orders := [][n]int{{0, 1, 2, 3, 4}, {0, 2, 1, 3, 4}, {4, 3, 2, 1, 0}, {3, 4, 0, 1, 2}, {2, 2, 2, 0, 0}, {1, 1, 1, 1, 1}, {3, 0, 0, 2, 1}}
	for _, keep := range []bool{false, true} {
		for _, order := range orders {
			s := &nsexec.Spec{Path: "/bin/bash", Args: []string{"bash", "-c", "for i in 1 2; do echo $i >&$i; done; [ -z $KEEP ] && for i in 3 4; do echo $i >&$i; done; [ -z $KEEP ] || { echo kept >&77; }; exit 0"},
				Env: []string{"KEEP="}, Namespaces: nsexec.Namespaces{PID: nsexec.New, User: nsexec.New}, Init: true}
			s.Stdin, s.Stdout, s.Stderr = writers[order[0]], writers[order[1]], writers[order[2]]
			want := map[int]string{}
			want[order[1]] += "1\n"
			want[order[2]] += "2\n"
			kr, kw, err := os.Pipe()
			if err != nil {
				panic(err)
			}
			if keep {
				s.KeepFDs, s.Env = true, []string{"KEEP=1"}
				if err := unix.Dup3(int(kw.Fd()), 77, 0); err != nil {
					panic(err)
				}
			} else {
				s.Files = []*os.File{writers[order[3]], writers[order[4]]}
				want[order[3]] += "3\n"
				want[order[4]] += "4\n"
			}
			kw.Close()
			p, err := nsexec.Start(s)
			unix.Close(77)
			if err != nil {
				fmt.Fprintln(say, keep, order, err)
				kr.Close()
				continue
			}
			<-p.Done()
			kept, _ := io.ReadAll(kr)
			kr.Close()
			if keep != (string(kept) == "kept\n") {
				fmt.Fprintf(say, "KeepFDs %v, %v: 77 got %q\n", keep, order, kept)
			}
			for i, r := range readers {
				var b [64]byte
				n, _ := unix.Read(r, b[:])
				if got := string(b[:max(n, 0)]); got != want[i] {
					fmt.Fprintf(say, "KeepFDs %v, %v: writer %d got %q, want %q\n", keep, order, i, got, want[i])
				}
			}
		}
	}
	fmt.Fprintln(say, "done")
})
