//go:build unix

// Command workspace measures packing, restoring and checkpointing a workspace
// against tar(1), and prints one table.
//
// Rounds are interleaved (ours, tar, ours, tar ...), so a machine that slows down
// slows both. The ratio is the median of the rounds' ratios. Files stay in the page
// cache: what is compared is the work, not the disk.
//
//	go run ./tests/bench/workspace [-rounds 9] [-files 50000] [-big 2048] [-dir /tmp] [-only small]
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/populationgenomics/postern-go/checkpoint"
	"github.com/populationgenomics/postern-go/workspace"
)

func main() {
	rounds := flag.Int("rounds", 9, "rounds per row")
	files := flag.Int("files", 50_000, "small files")
	big := flag.Int64("big", 2048, "size of the big file, MiB")
	dir := flag.String("dir", os.TempDir(), "where to put the files")
	only := flag.String("only", "", "one part: small, big, checkpoint or memory")
	flag.Parse()
	if err := run(*rounds, *files, *big<<20, *dir, *only); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(rounds, files int, big int64, in, only string) error {
	dir, err := os.MkdirTemp(in, "bench-workspace-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := bench{dir: dir, rounds: rounds, out: tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)}
	fmt.Fprintf(b.out, "what\tours, median\tagainst\tmedian\tratio, median\tbar\n")
	for _, part := range []struct {
		name string
		run  func() error
	}{
		{"small", func() error {
			return b.archives(fmt.Sprintf("%d small files", files), func(d string) error { return small(d, files) })
		}},
		{"big", func() error {
			return b.archives(fmt.Sprintf("one file of %d MiB", big>>20), func(d string) error { return single(d, big) })
		}},
		{"checkpoint", func() error { return b.checkpoints(files) }},
		{"memory", b.memory},
	} {
		if only != "" && only != part.name {
			continue
		}
		if err := part.run(); err != nil {
			return err
		}
	}
	return b.out.Flush()
}

type bench struct {
	dir    string
	rounds int
	out    *tabwriter.Writer
}

// row runs both sides in turn; before runs, untimed, ahead of each.
func (b *bench) row(what, against, bar string, before, ours, theirs func() error) error {
	var a, t, ratios []float64
	for range b.rounds {
		x, err := timed(before, ours)
		if err != nil {
			return err
		}
		y, err := timed(before, theirs)
		if err != nil {
			return err
		}
		a, t, ratios = append(a, x), append(t, y), append(ratios, x/y)
	}
	fmt.Fprintf(b.out, "%s\t%.3f s\t%s\t%.3f s\t%.2f\t%s\n", what, median(a), against, median(t), median(ratios), bar)
	return b.out.Flush()
}

func timed(before, f func() error) (float64, error) {
	if before != nil {
		if err := before(); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	err := f()
	return time.Since(start).Seconds(), err
}

func median(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	return xs[len(xs)/2]
}

// archives compares packing to a file, and restoring from it, with tar.
func (b *bench) archives(what string, fill func(dir string) error) error {
	ctx := context.Background()
	src, to := filepath.Join(b.dir, "src"), filepath.Join(b.dir, "to")
	archive := filepath.Join(b.dir, "a.tar")
	defer os.RemoveAll(src)
	defer os.RemoveAll(to)
	defer os.Remove(archive)
	if err := os.Mkdir(src, 0o755); err != nil {
		return err
	}
	if err := fill(src); err != nil {
		return err
	}
	err := b.row("pack "+what, "tar -cf", "1.2",
		func() error { return os.RemoveAll(archive) },
		func() error {
			w, err := workspace.Open(src)
			if err != nil {
				return err
			}
			defer w.Close()
			f, err := os.Create(archive)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = w.PackTar(ctx, f, workspace.PackOptions{})
			return err
		},
		func() error { return exec.Command("tar", "-C", src, "--sort=name", "-cf", archive, ".").Run() },
	)
	if err != nil {
		return err
	}
	return b.row("restore "+what, "tar -xf", "1.2",
		func() error {
			if err := os.RemoveAll(to); err != nil {
				return err
			}
			return os.Mkdir(to, 0o755)
		},
		func() error {
			w, err := workspace.Open(to)
			if err != nil {
				return err
			}
			defer w.Close()
			f, err := os.Open(archive)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = w.RestoreTar(ctx, f, workspace.RestoreOptions{})
			return err
		},
		func() error { return exec.Command("tar", "-C", to, "-xf", archive).Run() },
	)
}

// checkpoints compares saving what has changed a little with saving all.
func (b *bench) checkpoints(files int) error {
	ctx := context.Background()
	src := filepath.Join(b.dir, "src")
	if err := os.Mkdir(src, 0o755); err != nil {
		return err
	}
	if err := small(src, files); err != nil {
		return err
	}
	w, err := workspace.Open(src)
	if err != nil {
		return err
	}
	defer w.Close()
	base, err := checkpoint.OpenDir(filepath.Join(b.dir, "base"))
	if err != nil {
		return err
	}
	defer base.Close()
	save := func(store checkpoint.Store) error {
		_, err := checkpoint.Save(ctx, w, store, "bench", checkpoint.SaveOptions{})
		return err
	}
	if err := save(base); err != nil {
		return err
	}
	round := 0
	change := func() error {
		round++
		for i := range 100 {
			name := smallName(src, i*files/100)
			if err := os.WriteFile(name, fmt.Appendf(nil, "changed in round %d: %d\n", round, i), 0o644); err != nil {
				return err
			}
		}
		return nil
	}
	fresh := filepath.Join(b.dir, "fresh")
	return b.row(fmt.Sprintf("checkpoint %d files, 100 changed", files), "all of them", "0.1", change,
		func() error { return save(base) },
		func() error {
			store, err := checkpoint.OpenDir(fresh)
			if err != nil {
				return err
			}
			defer os.RemoveAll(fresh)
			defer store.Close()
			return save(store)
		},
	)
}

// memory shows what packing holds for ten times the files, and for depth.
func (b *bench) memory() error {
	for _, shape := range []struct {
		what string
		fill func(dir string) error
	}{
		{"5000 files", func(d string) error { return small(d, 5000) }},
		{"50000 files", func(d string) error { return small(d, 50_000) }},
		{"50 levels", func(d string) error { return deep(d, 50) }},
		{"5000 levels", func(d string) error { return deep(d, 5000) }},
	} {
		dir := filepath.Join(b.dir, "mem")
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		if err := shape.fill(dir); err != nil {
			return err
		}
		w, err := workspace.Open(dir)
		if err != nil {
			return err
		}
		held := &heap{}
		runtime.GC()
		start := live()
		_, err = w.PackTar(context.Background(), held, workspace.PackOptions{})
		if err != nil {
			return err
		}
		fmt.Fprintf(b.out, "heap while packing %s\t%.1f MiB\t\t\t\t\n", shape.what, float64(held.most-min(start, held.most))/(1<<20))
		if err := w.RemoveAll("."); err != nil {
			return err
		}
		w.Close()
		os.Remove(dir)
	}
	return nil
}

// heap samples the live heap after every few megabytes of archive.
type heap struct {
	written, sampled int
	most             uint64
}

func (h *heap) Write(p []byte) (int, error) {
	h.written += len(p)
	if h.sampled == 0 || h.written-h.sampled > 8<<20 {
		h.sampled = h.written
		h.most = max(h.most, live())
	}
	return len(p), nil
}

func live() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func smallName(dir string, i int) string {
	return filepath.Join(dir, fmt.Sprintf("d%02d", i/5000), fmt.Sprintf("s%02d", i/100%50), fmt.Sprintf("file%03d.txt", i%100))
}

// small makes files of half a kilobyte to eight, a hundred to a directory, of words in
// random order, which compress about as well as source code.
func small(dir string, n int) error {
	rng := rand.New(rand.NewPCG(1, 2))
	words := make([]string, 2000)
	for i := range words {
		words[i] = strconv.FormatUint(rng.Uint64()>>(24+rng.IntN(32)), 36)
	}
	var text []byte
	for i := range n {
		name := smallName(dir, i)
		if i%100 == 0 {
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				return err
			}
		}
		text = text[:0]
		for len(text) < 500+i*7919%7500 {
			text = append(append(text, words[rng.IntN(len(words))]...), ' ')
		}
		if err := os.WriteFile(name, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func single(dir string, size int64) error {
	f, err := os.Create(filepath.Join(dir, "big"))
	if err != nil {
		return err
	}
	defer f.Close()
	block := bytes.Repeat([]byte("some content of a large file 01234\n"), 30_000)
	_, err = io.CopyN(f, &endless{block: block}, size)
	return err
}

type endless struct {
	block []byte
	at    int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.block[e.at:])
	e.at = (e.at + n) % len(e.block)
	return n, nil
}

// deep makes a chain of directories through the workspace, since no path names the lowest.
func deep(dir string, levels int) error {
	w, err := workspace.Open(dir)
	if err != nil {
		return err
	}
	defer w.Close()
	return w.MkdirAll(string(bytes.Repeat([]byte("d/"), levels)))
}
