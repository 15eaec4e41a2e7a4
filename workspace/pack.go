package workspace

import (
	"archive/tar"
	"bufio"
	"context"
	"io"
	"io/fs"
	"time"
	"unicode/utf8"
)

// PackOptions are the options of [Workspace.PackTar]. The zero value packs everything
// that is safe, uncompressed, within the default limits.
type PackOptions struct {
	Selection
	Compression Compression
}

// PackTar writes the workspace's regular files and directories to dst as a tar
// archive (PAX format). Everything else is left out and reported: symbolic links, FIFOs,
// sockets, devices, files with hard links outside, mount points, what cannot be read.
//
// Entries come sorted, directories before what is in them, without the workspace
// itself. They carry permissions and the modification time in seconds; no
// set-user-ID, set-group-ID or sticky bit, no owner, no extended attributes. So
// equal trees give equal bytes. A file with several names is packed under each.
//
// After an error the archive is incomplete. dst is not closed.
func (w *Workspace) PackTar(ctx context.Context, dst io.Writer, opts PackOptions) (Report, error) {
	var report Report
	p := packer{
		collector: newCollector(ctx, w, "pack", opts.Selection, &report),
		full:      make(chan *batch, packBatches), free: make(chan *batch, packBatches), failed: make(chan struct{}),
		batch: newBatch(),
	}
	for range packBatches - 1 {
		p.free <- newBatch()
	}
	return report, wrap("pack", "", p.pack(dst, opts.Compression))
}

const (
	// packBuffer is how much is read at once; a file up to this size is read before its header is written.
	packBuffer  = 256 << 10
	packBatches = 8
)

// packer reads files in one goroutine, while another formats, compresses and writes.
type packer struct {
	*collector
	batch  *batch // being filled
	full   chan *batch
	free   chan *batch
	abort  bool // no more batches because of an error
	failed chan struct{}
	err    error // of writing, once failed is closed
}

// batch is a run of pieces of the archive: handing over each small file by itself would cost more than it gains.
type batch struct {
	pieces []piece
	buf    []byte // of packBuffer capacity, holding the pieces' data
	names  int    // bytes held by the headers
}

// piece is a header, content, or both.
type piece struct {
	header *tar.Header
	data   []byte
}

func newBatch() *batch { return &batch{buf: make([]byte, 0, packBuffer)} }

func (p *packer) pack(dst io.Writer, c Compression) error {
	out := bufio.NewWriterSize(dst, packBuffer)
	z, err := c.writer(out)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		err := p.write(z)
		if cerr := z.Close(); err == nil {
			err = cerr
		}
		if err == nil {
			err = out.Flush()
		}
		done <- err
	}()
	err = p.run(p.add)
	if err == nil {
		err = p.flush()
	}
	p.abort = err != nil
	close(p.full)
	if werr := <-done; err == nil {
		err = werr
	}
	return err
}

func (p *packer) write(z io.Writer) error {
	tw := tar.NewWriter(z)
	for b := range p.full {
		for _, x := range b.pieces {
			var err error
			if x.header != nil {
				err = tw.WriteHeader(x.header)
			}
			if err == nil && len(x.data) > 0 {
				_, err = tw.Write(x.data)
			}
			if err != nil {
				p.err = err
				close(p.failed)
				return err
			}
		}
		clear(b.pieces)
		b.pieces, b.buf, b.names = b.pieces[:0], b.buf[:0], 0
		p.free <- b
	}
	if p.abort {
		return nil
	}
	return tw.Close()
}

// room gives n bytes of a batch, to be filled and sent. What is not sent is given out again.
func (p *packer) room(n int64) ([]byte, error) {
	const maxNames = 32 << 10
	used := int64(len(p.batch.buf))
	if used+n > packBuffer || p.batch.names >= maxNames {
		if err := p.flush(); err != nil {
			return nil, err
		}
		used = 0
	}
	return p.batch.buf[used : used+n], nil
}

// send adds a piece to the batch. Its data is the beginning of the room given out last.
func (p *packer) send(h *tar.Header, data []byte) {
	p.batch.pieces = append(p.batch.pieces, piece{h, data})
	if h != nil {
		const headerSize = 200 // about what one takes in memory
		p.batch.names += headerSize + len(h.Name)
	}
	p.batch.buf = p.batch.buf[:len(p.batch.buf)+len(data)]
}

// flush hands the batch over.
func (p *packer) flush() error {
	select {
	case p.full <- p.batch:
	case <-p.failed:
		return p.err
	}
	select {
	case p.batch = <-p.free:
		return nil
	case <-p.failed:
		return p.err
	}
}

func (p *packer) add(e *Entry) error {
	if e.typ.IsDir() {
		st, err := e.stat()
		if err == nil && !st.mode.IsDir() {
			err = Unreadable
		}
		if err != nil {
			return p.unreadable(e.path, err)
		}
		p.report.stripped(e.path, st.mode, false)
		if _, err := p.room(0); err != nil {
			return wrap(p.op, e.path, err)
		}
		p.send(header(e.path, &st), nil)
		p.report.Dirs++
		p.report.Last = e.path
		return nil
	}
	fd, st, err := p.w.r.openListed(e.d.fd(), e.Name())
	if err != nil {
		return p.unreadable(e.path, err)
	}
	defer closeFD(fd)
	if st.mode.IsDir() {
		return p.unreadable(e.path, Unreadable)
	}
	if outside, err := p.linkedOutside(&st); err != nil {
		return err
	} else if outside {
		return p.skip(e.path, Hardlink)
	}
	return p.file(e.path, fd, &st)
}

func (p *packer) file(path string, fd int, st *stat) error {
	room, err := p.room(min(st.size, packBuffer))
	if err != nil {
		return wrap(p.op, path, err)
	}
	head, err := readFull(fd, room)
	if err != nil {
		return p.unreadable(path, err)
	}
	size, torn := st.size, false
	if size <= packBuffer && int64(len(head)) < size {
		size, torn = int64(len(head)), true
	}
	if err := p.meter.content(size); err != nil {
		return wrap(p.op, path, err)
	}
	p.report.stripped(path, st.mode, st.mode.Perm()&0o111 != 0 && hasCapability(fd))
	h := header(path, st)
	h.Size = size
	p.send(h, head)
	for left := size - int64(len(head)); left > 0; left -= int64(len(head)) {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		if head, err = p.room(min(left, packBuffer)); err != nil {
			return wrap(p.op, path, err)
		}
		n := 0
		if !torn {
			got, err := readFull(fd, head)
			n, torn = len(got), err != nil || len(got) < len(head)
		}
		// The size is promised, so the rest of a file that is cut short is zeros.
		clear(head[n:])
		p.send(nil, head)
	}
	if torn {
		p.report.Change(path, Torn)
	}
	p.report.Files++
	p.report.Bytes += size
	p.report.Last = path
	return nil
}

// readFull reads until buf is full or the file ends.
func readFull(fd int, buf []byte) ([]byte, error) {
	n := 0
	for n < len(buf) {
		m, err := readFD(fd, buf[n:])
		if err != nil || m == 0 {
			return buf[:n], err
		}
		n += m
	}
	return buf, nil
}

// header describes a file or directory without anything that is particular to this host.
func header(path string, st *stat) *tar.Header {
	h := &tar.Header{
		Typeflag: tar.TypeReg,
		Name:     path,
		Mode:     int64(st.mode.Perm()),
		ModTime:  time.Unix(st.mtime.Unix(), 0),
		Format:   tar.FormatPAX,
	}
	if st.mode.Type() == fs.ModeDir {
		h.Typeflag = tar.TypeDir
		h.Name += "/"
	}
	if !utf8.ValidString(path) {
		h.PAXRecords = map[string]string{"hdrcharset": "BINARY"}
	}
	return h
}
