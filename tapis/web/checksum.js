// Whether bytes of the file are as they were written, by their number and their CRC-32, as zlib computes it.

const CRC_OF_BYTE = Uint32Array.from({ length: 256 }, (_, byte) => {
  for (let bit = 0; bit < 8; bit++) byte = byte & 1 ? (byte >>> 1) ^ 0xedb88320 : byte >>> 1;
  return byte;
});

// size and crc may be texts, as the attributes of an element are.
function areIntact(bytes, { size, crc }) {
  let found = 0xffffffff;
  for (let i = 0; i < bytes.length; i++) found = CRC_OF_BYTE[(found ^ bytes[i]) & 0xff] ^ (found >>> 8);
  return bytes.length === Number(size) && (found ^ 0xffffffff) >>> 0 === Number(crc);
}
