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
	p := packer{collector: newCollector(ctx, w, "pack", opts.Selection, &report), buf: make([]byte, packBuffer)}
	err := p.pack(dst, opts.Compression)
	return report, wrap("pack", "", err)
}

// packBuffer is how much is read at once; a file up to this size is read before its header is written.
const packBuffer = 1 << 20

type packer struct {
	*collector
	tar *tar.Writer
	buf []byte
}

func (p *packer) pack(dst io.Writer, c Compression) error {
	out := bufio.NewWriterSize(dst, packBuffer)
	z, err := c.writer(out)
	if err != nil {
		return err
	}
	p.tar = tar.NewWriter(z)
	err = p.run(p.add)
	if err == nil {
		err = p.tar.Close()
	}
	if cerr := z.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return out.Flush()
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
		if err := p.tar.WriteHeader(header(e.path, &st)); err != nil {
			return wrap(p.op, e.path, err)
		}
		p.report.Dirs++
		p.report.Last = e.path
		return nil
	}
	fd, st, err := p.w.r.openFile(e.d.fd(), e.Name(), read)
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
	head, err := readFull(fd, p.buf[:min(st.size, packBuffer)])
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
	if err := p.tar.WriteHeader(h); err != nil {
		return wrap(p.op, path, err)
	}
	for left := size; left > 0; {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		if len(head) == 0 {
			// The size is promised, so the rest of a file that is cut short is zeros.
			torn = true
			head = p.buf[:min(left, packBuffer)]
			clear(head)
		}
		if _, err := p.tar.Write(head); err != nil {
			return wrap(p.op, path, err)
		}
		left -= int64(len(head))
		if left > 0 && !torn {
			head, err = readFull(fd, p.buf[:min(left, packBuffer)])
			torn = err != nil
		} else {
			head = nil
		}
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
