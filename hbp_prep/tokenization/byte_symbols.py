"""GPT-2's byte-level alphabet: how vocabularies of byte-level tokenizers write bytes, one symbol each.

Printable Latin-1 bytes stand for themselves, the others for U+0100 onwards.
"""

_PRINTABLE = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
_SYMBOL_OF_BYTE = {byte: chr(byte) for byte in _PRINTABLE} | {byte: chr(0x100 + at) for at, byte in enumerate(_OTHERS)}
_BYTE_OF_SYMBOL = {symbol: byte for byte, symbol in _SYMBOL_OF_BYTE.items()}


def to_symbols(data: bytes) -> str:
    """The bytes as a token is written."""
    return data.decode("latin-1").translate(_SYMBOL_OF_BYTE)


def to_bytes(token: str) -> bytes:
    """The bytes of a token as it is written."""
    return bytes([_BYTE_OF_SYMBOL[symbol] for symbol in token])
