package checkpoint

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// CorruptError is returned when an object of the store is not what was put there.
type CorruptError struct {
	Name string
	Err  error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("checkpoint: %s is damaged: %v", e.Name, e.Err)
}
func (e *CorruptError) Unwrap() error { return e.Err }

type hash [sha256.Size]byte

// manifest lists what a checkpoint holds, in the order of a walk.
type manifest struct {
	packs []packInfo
	files []entry
}

type packInfo struct {
	id   hash // of its compressed bytes
	size int64
}

func (p packInfo) name() string { return packPrefix + hex.EncodeToString(p.id[:]) }

// entry is a file or a directory.
type entry struct {
	path   string
	dir    bool
	perm   fs.FileMode
	mtime  int64 // nanoseconds since 1970
	size   int64
	chunks []chunk
	seen   identity
}

// chunk is a piece of a file's content.
type chunk struct {
	pack   int // index in the manifest
	offset int64
	size   int64
	sum    hash
}

// identity tells, on the host that saved it, whether a file has changed since. The
// zero value equals nothing.
type identity struct {
	dev, ino uint64
	ctime    int64
}

const (
	packPrefix     = "packs/"
	manifestPrefix = "checkpoints/"
	manifestMagic  = "postern checkpoint 1\n"

	// maxManifest bounds, in bytes, what is read and unpacked of a manifest.
	maxManifest = 1 << 30
)

// keyName is the object's name for a key.
func keyName(key string) (string, error) {
	const maxKey = 200
	var b strings.Builder
	for i := range len(key) {
		switch c := key[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	if key == "" || b.Len() > maxKey {
		return "", fmt.Errorf("checkpoint: key %.40q has %d bytes when escaped, want 1 to %d", key, b.Len(), maxKey)
	}
	return manifestPrefix + b.String(), nil
}

// encode gives the manifest's bytes: a compressed part, and the chunks' hashes, which
// do not compress.
func (m *manifest) encode() []byte {
	b := make([]byte, 0, 64*(len(m.files)+len(m.packs)))
	var sums []byte
	b = binary.AppendUvarint(b, uint64(len(m.packs)))
	for _, p := range m.packs {
		b = append(b, p.id[:]...)
		b = binary.AppendUvarint(b, uint64(p.size))
	}
	b = binary.AppendUvarint(b, uint64(len(m.files)))
	last := ""
	for i := range m.files {
		e := &m.files[i]
		shared := commonPrefix(last, e.path)
		last = e.path
		b = binary.AppendUvarint(b, uint64(shared))
		b = binary.AppendUvarint(b, uint64(len(e.path)-shared))
		b = append(b, e.path[shared:]...)
		mode := uint64(e.perm.Perm()) << 1
		if e.dir {
			mode |= 1
		}
		b = binary.AppendUvarint(b, mode)
		b = binary.AppendVarint(b, e.mtime)
		if e.dir {
			continue
		}
		b = binary.AppendUvarint(b, uint64(e.size))
		b = binary.AppendUvarint(b, e.seen.dev)
		b = binary.AppendUvarint(b, e.seen.ino)
		b = binary.AppendVarint(b, e.seen.ctime)
		b = binary.AppendUvarint(b, uint64(len(e.chunks)))
		for _, c := range e.chunks {
			b = binary.AppendUvarint(b, uint64(c.pack))
			b = binary.AppendUvarint(b, uint64(c.offset))
			b = binary.AppendUvarint(b, uint64(c.size))
			sums = append(sums, c.sum[:]...)
		}
	}
	z := newEncoder().EncodeAll(b, nil)
	out := make([]byte, len(manifestMagic)+sha256.Size, len(manifestMagic)+sha256.Size+binary.MaxVarintLen64+len(z)+len(sums))
	copy(out, manifestMagic)
	out = binary.AppendUvarint(out, uint64(len(z)))
	out = append(append(out, z...), sums...)
	sum := sha256.Sum256(out[len(manifestMagic)+sha256.Size:])
	copy(out[len(manifestMagic):], sum[:])
	return out
}

func commonPrefix(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

var (
	errMalformed = errors.New("malformed")
	errChecksum  = errors.New("its checksum does not match")
)

func decode(data []byte) (*manifest, error) {
	rest, ok := bytes.CutPrefix(data, []byte(manifestMagic))
	if !ok || len(rest) < sha256.Size {
		return nil, errMalformed
	}
	sum, rest := hash(rest[:sha256.Size]), rest[sha256.Size:]
	if sha256.Sum256(rest) != sum {
		return nil, errChecksum
	}
	z, err := newDecoder(maxManifest)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	r := reader{b: rest}
	packed := r.bytes(r.length())
	if r.bad {
		return nil, errMalformed
	}
	body, err := z.DecodeAll(packed, nil)
	if err != nil {
		return nil, err
	}
	return parse(body, r.b)
}

// minEntry is the size of the smallest entry: a directory.
const minEntry = 4

func parse(body, hashes []byte) (*manifest, error) {
	r, sums := reader{b: body}, reader{b: hashes}
	m := &manifest{}
	chunks := make([]chunk, 0, len(hashes)/sha256.Size)
	for n := r.count(); n > 0 && !r.bad; n-- {
		p := packInfo{id: r.hash()}
		p.size = r.length()
		m.packs = append(m.packs, p)
	}
	last := ""
	n := r.count()
	m.files = make([]entry, 0, min(n, int64(len(body)/minEntry)))
	for ; n > 0 && !r.bad; n-- {
		var e entry
		shared, own := r.length(), r.length()
		if shared > int64(len(last)) {
			return nil, errMalformed
		}
		e.path = last[:shared] + string(r.bytes(own))
		last = e.path
		mode := r.uvarint()
		e.dir, e.perm = mode&1 != 0, fs.FileMode(mode>>1)&fs.ModePerm
		e.mtime = r.varint()
		if !e.dir {
			e.size = r.length()
			e.seen = identity{r.uvarint(), r.uvarint(), r.varint()}
			var total int64
			first := len(chunks)
			for n := r.count(); n > 0 && !r.bad; n-- {
				c := chunk{pack: int(r.length()), offset: r.length(), size: r.length()}
				c.sum = sums.hash()
				if r.bad || sums.bad || c.pack >= len(m.packs) || c.size > m.packs[c.pack].size || c.offset > m.packs[c.pack].size-c.size {
					return nil, errMalformed
				}
				total += c.size
				chunks = append(chunks, c)
			}
			e.chunks = chunks[first:len(chunks):len(chunks)]
			if total != e.size {
				return nil, errMalformed
			}
		}
		m.files = append(m.files, e)
	}
	if r.bad || len(r.b) > 0 || len(sums.b) > 0 {
		return nil, errMalformed
	}
	return m, nil
}

// reader takes values off a byte slice; when one is missing it gives zeros and is bad from then on.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	r.advance(n)
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	r.advance(n)
	return v
}

func (r *reader) advance(n int) {
	if n <= 0 {
		r.bad, r.b = true, nil
		return
	}
	r.b = r.b[n:]
}

// length is a number that cannot be negative, nor overflow when a few are added.
func (r *reader) length() int64 {
	v := r.uvarint()
	if v > 1<<60 {
		r.bad = true
		return 0
	}
	return int64(v)
}

// count is how many things follow, of at least a byte each.
func (r *reader) count() int64 {
	n := r.length()
	if n > int64(len(r.b)) {
		r.bad = true
		return 0
	}
	return n
}

func (r *reader) bytes(n int64) []byte {
	if n > int64(len(r.b)) {
		r.bad = true
		return nil
	}
	p := r.b[:n]
	r.b = r.b[n:]
	return p
}

func (r *reader) hash() (h hash) {
	copy(h[:], r.bytes(int64(len(h))))
	return h
}

func newEncoder() *zstd.Encoder {
	// The options are constants, and known to be valid.
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(err)
	}
	return z
}

func newDecoder(max uint64) (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(max))
}

// readManifest reads the manifest of a key. The error matches fs.ErrNotExist if there is none.
func readManifest(ctx context.Context, store Store, key string) (*manifest, error) {
	name, err := keyName(key)
	if err != nil {
		return nil, err
	}
	data, err := readObject(ctx, store, name, maxManifest)
	if err != nil {
		return nil, fmt.Errorf("checkpoint %q: %w", key, err)
	}
	m, err := decode(data)
	if err != nil {
		return nil, &CorruptError{name, err}
	}
	return m, nil
}

func readObject(ctx context.Context, store Store, name string, max int64) ([]byte, error) {
	r, err := store.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, max+1))
	if err == nil && int64(len(data)) > max {
		err = &CorruptError{name, fmt.Errorf("more than %d bytes", max)}
	}
	return data, err
}
