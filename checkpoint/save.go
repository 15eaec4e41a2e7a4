package checkpoint

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/populationgenomics/postern-go/workspace"
)

// SaveOptions are the options of [Save]. The zero value saves the whole workspace.
type SaveOptions struct {
	// Globs name what is durable: slash-separated paths inside the workspace, in which
	// *, ? and [...] stand for parts of one component as in path.Match, and a component ** for any
	// number of them. A directory that matches is saved with all that is in it. Nil stands for everything.
	Globs []string
	// Base is the key of a checkpoint in the same store to compare with; "" for the one that is replaced.
	Base string
	// Full reads every file, and compares with nothing.
	Full bool

	OnUnsafe workspace.OnUnsafe
	workspace.Limits
}

// Report tells what a checkpoint holds, and what it left out.
type Report struct {
	workspace.Report
	Unchanged int64 // files that were not read, because nothing about them has changed
	Stored    int64 // bytes of contents that were new to the store, before compression
}

const (
	chunkSize = 4 << 20
	// A pack is full at maxPack bytes; from minPack on it also ends at a chunk whose hash
	// says so. Workspaces that differ in a few files so still have most packs in common.
	minPack = 4 << 20
	maxPack = 16 << 20
	// racy is how old a change must be for a later one to be sure to have another
	// time: the kernel's clock for files ticks every 10 ms or faster.
	racy = 100 * time.Millisecond
)

// Save makes a checkpoint of the workspace under a key, in place of the one that was there.
func Save(ctx context.Context, ws *workspace.Workspace, store Store, key string, opts SaveOptions) (Report, error) {
	name, err := keyName(key)
	if err != nil {
		return Report{}, err
	}
	gs, err := compile(opts.Globs)
	if err != nil {
		return Report{}, err
	}
	s := saver{
		ctx: ctx, store: store, globs: gs, onUnsafe: opts.OnUnsafe, maxBytes: opts.MaxBytes,
		encoder: newEncoder(), own: map[hash]chunk{}, adopted: map[int]int{}, buf: make([]byte, chunkSize),
	}
	defer s.encoder.Close()
	switch {
	case s.maxBytes == 0:
		s.maxBytes = workspace.DefaultMaxBytes
	case s.maxBytes < 0:
		s.maxBytes = math.MaxInt64
	}
	if err := s.compareWith(key, opts); err != nil {
		return Report{}, err
	}
	sel := workspace.Selection{OnUnsafe: opts.OnUnsafe, Limits: opts.Limits, Exclude: func(path string) bool {
		selected, below := gs.match(path)
		return !selected && !below
	}}
	for e, err := range ws.Contents(ctx, sel, &s.report.Report) {
		if err == nil {
			err = s.add(e)
		}
		if err != nil {
			return s.report, fmt.Errorf("checkpoint %q: %w", key, err)
		}
	}
	if err := s.flush(); err != nil {
		return s.report, err
	}
	if err := store.Put(ctx, name, bytes.NewReader(s.m.encode())); err != nil {
		return s.report, fmt.Errorf("checkpoint %q: storing its manifest: %w", key, err)
	}
	return s.report, nil
}

type saver struct {
	ctx      context.Context
	store    Store
	globs    globs
	onUnsafe workspace.OnUnsafe
	maxBytes int64
	encoder  *zstd.Encoder
	report   Report
	m        manifest
	own      map[hash]chunk // chunks new in m

	base      *manifest
	next      int            // in base.files, which are in the order of the walk
	adopted   map[int]int    // packs of base that m has too, by their numbers in base and in m
	sparse    []bool         // packs of base that are mostly garbage
	baseChunk map[hash]chunk // chunks of base, by its numbers; made when first needed

	parents []entry // directories that are saved if anything in them is
	pack    []byte  // the pack being filled,
	number  int     // whose number in m is this
	buf     []byte
}

// compareWith loads the checkpoint that tells what has changed.
func (s *saver) compareWith(key string, opts SaveOptions) error {
	s.base = &manifest{}
	if opts.Full {
		return nil
	}
	if opts.Base != "" {
		key = opts.Base
	}
	base, err := readManifest(s.ctx, s.store, key)
	if errors.Is(err, fs.ErrNotExist) && opts.Base == "" {
		return nil
	}
	if err != nil {
		return err
	}
	s.base = base
	s.m.files = make([]entry, 0, len(base.files)+len(base.files)/8)
	// What is still used of a pack that is mostly garbage is stored anew, so that
	// Prune can delete it.
	live := make([]int64, len(base.packs))
	for _, e := range base.files {
		for _, c := range e.chunks {
			live[c.pack] += c.size
		}
	}
	s.sparse = make([]bool, len(base.packs))
	for i, p := range base.packs {
		s.sparse[i] = live[i] < p.size/2
	}
	return nil
}

// add saves an entry. Whatever the guest did to it meanwhile is a finding, not an error.
func (s *saver) add(e *workspace.Entry) error {
	path := e.Path()
	for n := len(s.parents); n > 0 && !strings.HasPrefix(path, s.parents[n-1].path+"/"); n-- {
		s.parents = s.parents[:n-1]
	}
	info, err := e.Info()
	if err != nil {
		return s.skip(path, err)
	}
	it := entry{path: path, dir: e.IsDir(), perm: info.Mode().Perm(), mtime: info.ModTime().UnixNano()}
	selected, _ := s.globs.match(path)
	switch {
	case it.dir && !selected:
		s.parents = append(s.parents, it)
		return nil
	case it.dir:
		s.keep(it)
		return nil
	case !selected:
		return nil
	}
	it.size = info.Size()
	if err := s.limit(it.size); err != nil {
		return err
	}
	if old := s.find(path); old != nil && old.size == it.size && old.mtime == it.mtime && old.seen == identityOf(info) && s.dense(old) {
		it.seen = old.seen
		it.chunks = make([]chunk, 0, len(old.chunks))
		for _, c := range old.chunks {
			it.chunks = append(it.chunks, s.adopt(c))
		}
		s.report.Unchanged++
	} else if skipped, err := s.read(e, &it); skipped || err != nil {
		return err
	}
	s.keep(it)
	return nil
}

func (s *saver) skip(path string, err error) error {
	if s.onUnsafe == workspace.Fail || errors.Is(err, fs.ErrClosed) {
		return err
	}
	why := workspace.Unreadable
	errors.As(err, &why)
	s.report.Skip(path, why)
	return nil
}

func (s *saver) limit(more int64) error {
	if more > s.maxBytes-s.report.Bytes {
		return &workspace.LimitError{What: "workspace", Limit: "max_bytes", Max: s.maxBytes}
	}
	return nil
}

func (s *saver) keep(it entry) {
	s.m.files = append(append(s.m.files, s.parents...), it)
	s.report.Dirs += int64(len(s.parents))
	if it.dir {
		s.report.Dirs++
	} else {
		s.report.Files++
	}
	s.parents = s.parents[:0]
	s.report.Bytes += it.size
	s.report.Last = it.path
}

// find looks a file up in base. Paths must come in the order of the walk.
func (s *saver) find(path string) *entry {
	for ; s.next < len(s.base.files); s.next++ {
		e := &s.base.files[s.next]
		switch c := compare(e.path, path); {
		case c > 0:
			return nil
		case c == 0 && !e.dir:
			return e
		}
	}
	return nil
}

// compare orders paths as a walk does: component by component.
func compare(a, b string) int {
	n := commonPrefix(a, b)
	rank := func(s string) int {
		switch {
		case n == len(s):
			return -2
		case s[n] == '/':
			return -1
		}
		return int(s[n])
	}
	return rank(a) - rank(b)
}

func identityOf(info fs.FileInfo) identity {
	st := info.Sys().(*workspace.Stat)
	return identity{st.Dev, st.Ino, st.ChangeTime.UnixNano()}
}

func (s *saver) dense(e *entry) bool {
	for _, c := range e.chunks {
		if s.sparse[c.pack] {
			return false
		}
	}
	return true
}

// adopt makes a chunk of base one of m.
func (s *saver) adopt(c chunk) chunk {
	n, ok := s.adopted[c.pack]
	if !ok {
		n = len(s.m.packs)
		s.m.packs = append(s.m.packs, s.base.packs[c.pack])
		s.adopted[c.pack] = n
	}
	c.pack = n
	return c
}

// read reads a file and stores what is new of it.
func (s *saver) read(e *workspace.Entry, it *entry) (skipped bool, err error) {
	f, err := e.Open()
	if err != nil {
		return true, s.skip(it.path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = workspace.Unreadable
	}
	if err != nil {
		return true, s.skip(it.path, err)
	}
	it.perm, it.mtime, it.size = info.Mode().Perm(), info.ModTime().UnixNano(), info.Size()
	if err := s.limit(it.size); err != nil {
		return false, err
	}
	if changed := info.Sys().(*workspace.Stat).ChangeTime; time.Since(changed) > racy {
		it.seen = identityOf(info)
	}
	for left := it.size; left > 0; {
		if err := s.ctx.Err(); err != nil {
			return false, err
		}
		n, err := io.ReadFull(f, s.buf[:min(left, chunkSize)])
		if n > 0 {
			c, serr := s.chunk(s.buf[:n])
			if serr != nil {
				return false, serr
			}
			it.chunks = append(it.chunks, c)
			left -= int64(n)
		}
		if err != nil && left > 0 {
			// Cut short, or unreadable from here on: what there is counts, and next time it is read again.
			it.size -= left
			it.seen = identity{}
			s.report.Change(it.path, workspace.Torn)
			break
		}
	}
	return false, nil
}

// chunk finds a piece of content among what is stored, or stores it.
func (s *saver) chunk(data []byte) (chunk, error) {
	sum := hash(sha256.Sum256(data))
	if c, ok := s.own[sum]; ok {
		return c, nil
	}
	if s.baseChunk == nil {
		s.baseChunk = map[hash]chunk{}
		for _, e := range s.base.files {
			for _, c := range e.chunks {
				if !s.sparse[c.pack] {
					s.baseChunk[c.sum] = c
				}
			}
		}
	}
	if c, ok := s.baseChunk[sum]; ok {
		return s.adopt(c), nil
	}
	if len(s.pack) == 0 {
		s.number = len(s.m.packs)
		s.m.packs = append(s.m.packs, packInfo{})
	}
	c := chunk{pack: s.number, offset: int64(len(s.pack)), size: int64(len(data)), sum: sum}
	s.pack = append(s.pack, data...)
	s.own[sum] = c
	s.report.Stored += c.size
	if n := len(s.pack); n >= maxPack || n >= minPack && sum[0]&63 == 0 {
		return c, s.flush()
	}
	return c, nil
}

// flush stores the pack that has been filled.
func (s *saver) flush() error {
	if len(s.pack) == 0 {
		return nil
	}
	data := s.encoder.EncodeAll(s.pack, nil)
	p := packInfo{id: sha256.Sum256(data), size: int64(len(s.pack))}
	if err := s.store.Put(s.ctx, p.name(), bytes.NewReader(data)); err != nil {
		return fmt.Errorf("checkpoint: storing a pack: %w", err)
	}
	s.m.packs[s.number] = p
	s.pack = s.pack[:0]
	return nil
}
