package symbols

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"

	"cowaudit/pagemap"

	"github.com/ulikunitz/xz/lzma"
)

// Limits on the embedded file: ten times that of the largest programs there are.
const (
	maxMini       = 256 << 20 // bytes, unpacked
	maxDictionary = 64 << 20  // bytes; xz -9 has that
	maxBlocks     = 256       // each gets a dictionary; xz makes one of 24 MiB, or of 1 MiB with -0
)

// miniDebug unpacks the ELF file in .gnu_debugdata, which has the symbols of the functions that are not in .dynsym (gdb's
// manual, "Debugging information in a special section"). nil: there is none.
func miniDebug(f *elf.File) (*elf.File, error) {
	sec := f.Section(".gnu_debugdata")
	if sec == nil || sec.Type == elf.SHT_NOBITS {
		return nil, nil
	}
	if sec.Size > maxMini {
		return nil, fmt.Errorf("%w: %d bytes, more than %d", pagemap.ErrFormat, sec.Size, maxMini)
	}
	packed, err := sec.Data()
	if err != nil {
		return nil, err
	}
	var plain []byte
	if err = guard(func() error { plain, err = unxz(packed, maxMini); return err }); err != nil {
		return nil, fmt.Errorf("%w: xz: %w", pagemap.ErrFormat, err)
	}
	return readELF(bytes.NewReader(plain))
}

var (
	errXZ      = errors.New("not an xz stream")
	errXZLarge = errors.New("larger unpacked than allowed")
)

// unxz unpacks one xz stream (https://tukaani.org/xz/xz-file-format.txt). The package's own reader of the container takes
// any size that a block's header asks for as its dictionary, up to 4 GiB; so blocks are read here, and only LZMA2 there.
func unxz(b []byte, limit int) ([]byte, error) {
	if len(b) < 12 || string(b[:6]) != "\xfd7zXZ\x00" || crc32.ChecksumIEEE(b[6:8]) != binary.LittleEndian.Uint32(b[8:]) || b[6] != 0 {
		return nil, errXZ
	}
	var sum func() hash.Hash
	size := 0
	switch b[7] {
	case 0:
	case 1:
		sum, size = func() hash.Hash { return crc32.NewIEEE() }, 4
	case 4:
		sum, size = func() hash.Hash { return crc64.New(crc64.MakeTable(crc64.ECMA)) }, 8
	case 10:
		sum, size = sha256.New, 32
	default:
		return nil, fmt.Errorf("%w: check %d", errXZ, b[7])
	}
	b = b[12:]
	var out bytes.Buffer
	for n := 0; len(b) > 0 && b[0] != 0; n++ { // 0 begins the index, which has nothing that is needed
		if n == maxBlocks {
			return nil, fmt.Errorf("%w: more than %d blocks", errXZLarge, maxBlocks)
		}
		used, dict, err := xzBlockHeader(b)
		if err != nil {
			return nil, err
		}
		r := bytes.NewReader(b[used:])
		lz, err := lzma.Reader2Config{DictCap: dict}.NewReader2(r)
		if err != nil {
			return nil, err
		}
		start := out.Len()
		if _, err := io.Copy(&out, io.LimitReader(lz, int64(limit-start)+1)); err != nil {
			return nil, err
		}
		if out.Len() > limit {
			return nil, errXZLarge
		}
		used = len(b) - r.Len()
		used += -used & 3 // padding; blocks begin at multiples of four
		if len(b) < used+size {
			return nil, io.ErrUnexpectedEOF
		}
		if sum != nil {
			h := sum()
			h.Write(out.Bytes()[start:])
			want := h.Sum(nil)
			if size < 32 { // the CRCs are stored with the low byte first
				for i, j := 0, len(want)-1; i < j; i, j = i+1, j-1 {
					want[i], want[j] = want[j], want[i]
				}
			}
			if !bytes.Equal(want, b[used:used+size]) {
				return nil, fmt.Errorf("%w: wrong checksum", errXZ)
			}
		}
		b = b[used+size:]
	}
	return out.Bytes(), nil
}

// xzBlockHeader gives the length of a block's header and the size of its dictionary. Only LZMA2 alone is known, as everybody
// writes it.
func xzBlockHeader(b []byte) (used, dict int, err error) {
	used = (int(b[0]) + 1) * 4
	if len(b) < used || used < 8 || crc32.ChecksumIEEE(b[:used-4]) != binary.LittleEndian.Uint32(b[used-4:]) {
		return 0, 0, fmt.Errorf("%w: block header", errXZ)
	}
	flags, rest := b[1], b[2:used-4]
	for _, bit := range []byte{0x40, 0x80} { // sizes packed and unpacked
		if flags&bit != 0 {
			_, n := binary.Uvarint(rest)
			if n <= 0 {
				return 0, 0, fmt.Errorf("%w: block header", errXZ)
			}
			rest = rest[n:]
		}
	}
	if flags&0x3f != 0 || len(rest) < 3 || rest[0] != 0x21 || rest[1] != 1 {
		return 0, 0, fmt.Errorf("%w: a filter that is not LZMA2 alone", errXZ)
	}
	d, err := lzma.DecodeDictCap(rest[2])
	if err != nil {
		return 0, 0, err
	}
	if d > maxDictionary {
		return 0, 0, fmt.Errorf("%w: dictionary of %d bytes", errXZLarge, d)
	}
	return used, int(max(d, lzma.MinDictCap)), nil
}
