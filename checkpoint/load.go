package checkpoint

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"
	"github.com/populationgenomics/postern-go/workspace"
)

// LoadOptions are the options of [Load].
type LoadOptions struct {
	// Owner, if not nil, gets all files and directories, as with [workspace.RestoreOptions].
	Owner    *workspace.Owner
	OnUnsafe workspace.OnUnsafe
	workspace.Limits
}

// Load brings a checkpoint back into a workspace, with the permissions of files and
// directories and the modification times of files. It adds to what is there, and replaces files of the
// same name, under the rules of [workspace.Workspace.RestoreTar]; anything else in the workspace stays.
// The error matches fs.ErrNotExist if there is no checkpoint under the key.
func Load(ctx context.Context, ws *workspace.Workspace, store Store, key string, opts LoadOptions) (workspace.Report, error) {
	m, err := readManifest(ctx, store, key)
	if err != nil {
		return workspace.Report{}, err
	}
	z, err := newDecoder(maxPack + chunkSize)
	if err != nil {
		return workspace.Report{}, err
	}
	defer z.Close()

	pr, pw := io.Pipe()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	written := make(chan error, 1)
	go func() {
		l := loader{ctx: ctx, store: store, m: m, decoder: z}
		err := l.write(pw)
		pw.CloseWithError(err)
		written <- err
	}()
	report, err := ws.RestoreTar(ctx, pr, workspace.RestoreOptions{
		OnUnsafe: opts.OnUnsafe, Limits: opts.Limits, Owner: opts.Owner, PreserveModes: true, PreserveTimes: true,
	})
	// Ends the writer, if the reader has ended first.
	pr.CloseWithError(errReaderGone)
	cancel()
	if werr := <-written; werr != nil && err == nil && !errors.Is(werr, errReaderGone) {
		err = werr
	}
	if err != nil {
		err = fmt.Errorf("checkpoint %q: %w", key, err)
	}
	return report, err
}

var errReaderGone = errors.New("the reader has gone")

// loader turns a checkpoint into a tar archive.
type loader struct {
	ctx     context.Context
	store   Store
	m       *manifest
	decoder *zstd.Decoder
	cache   []cached // the packs used last, the latest first
}

type cached struct {
	pack int
	data []byte
}

// maxCache bounds the packs held in memory, in bytes.
const maxCache = 128 << 20

func (l *loader) write(w io.Writer) error {
	tw := tar.NewWriter(w)
	for i := range l.m.files {
		e := &l.m.files[i]
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: e.path, Mode: int64(e.perm), Size: e.size,
			ModTime: time.Unix(0, e.mtime), Format: tar.FormatPAX,
		}
		if e.dir {
			h.Typeflag, h.Name = tar.TypeDir, e.path+"/"
		}
		if !utf8.ValidString(e.path) {
			h.PAXRecords = map[string]string{"hdrcharset": "BINARY"}
		}
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		for _, c := range e.chunks {
			pack, err := l.pack(c.pack)
			if err != nil {
				return err
			}
			if _, err := tw.Write(pack[c.offset : c.offset+c.size]); err != nil {
				return err
			}
		}
	}
	return tw.Close()
}

// pack gets a pack, checked.
func (l *loader) pack(n int) ([]byte, error) {
	if i := slices.IndexFunc(l.cache, func(c cached) bool { return c.pack == n }); i >= 0 {
		hit := l.cache[i]
		copy(l.cache[1:i+1], l.cache[:i])
		l.cache[0] = hit
		return hit.data, nil
	}
	info := l.m.packs[n]
	data, err := readObject(l.ctx, l.store, info.name(), 2*(maxPack+chunkSize))
	if err != nil {
		return nil, err
	}
	if sha256.Sum256(data) != info.id {
		return nil, &CorruptError{info.name(), errChecksum}
	}
	data, err = l.decoder.DecodeAll(data, nil)
	if err == nil && int64(len(data)) != info.size {
		err = fmt.Errorf("%d bytes, want %d", len(data), info.size)
	}
	if err != nil {
		return nil, &CorruptError{info.name(), err}
	}
	l.cache = slices.Insert(l.cache, 0, cached{n, data})
	for size, i := 0, 0; i < len(l.cache); i++ {
		if size += len(l.cache[i].data); size > maxCache && i > 0 {
			l.cache = slices.Delete(l.cache, i, len(l.cache))
		}
	}
	return data, nil
}
