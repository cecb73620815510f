//! Sets of named bits, with the names that commands and dumps use.

/// Defines a bit set newtype: constants, their names, and set operations.
macro_rules! named_bits {
    (
        $(#[$doc:meta])*
        $name:ident($inner:ident) { $($(#[$bit_doc:meta])* $bit:ident = $nr:literal, $text:literal;)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(pub $inner);

        impl $name {
            pub const NONE: $name = $name(0);
            $($(#[$bit_doc])* pub const $bit: $name = $name(1 << $nr);)*

            /// Every named bit, in the order in which Ceph prints them.
            pub const NAMES: &'static [($name, &'static str)] = &[$(($name::$bit, $text)),*];

            /// The single bit of that name.
            pub fn from_name(name: &str) -> Option<$name> {
                Self::NAMES.iter().find(|(_, n)| *n == name).map(|(bit, _)| *bit)
            }

            /// Are all bits of `wanted` set?
            pub fn contains(self, wanted: $name) -> bool {
                self.0 & wanted.0 == wanted.0
            }

            /// Is any bit of `wanted` set?
            pub fn intersects(self, wanted: $name) -> bool {
                self.0 & wanted.0 != 0
            }

            pub fn is_empty(self) -> bool {
                self.0 == 0
            }

            pub fn insert(&mut self, bits: $name) {
                self.0 |= bits.0;
            }

            pub fn remove(&mut self, bits: $name) {
                self.0 &= !bits.0;
            }

            pub fn set(&mut self, bits: $name, on: bool) {
                if on { self.insert(bits) } else { self.remove(bits) }
            }

            /// Names of the bits that are set, in Ceph's printing order.
            pub fn names(self) -> impl Iterator<Item = &'static str> {
                Self::NAMES.iter().filter(move |(bit, _)| self.contains(*bit)).map(|(_, n)| *n)
            }
        }

        impl std::ops::BitOr for $name {
            type Output = $name;
            fn bitor(self, other: $name) -> $name { $name(self.0 | other.0) }
        }

        impl std::ops::BitAnd for $name {
            type Output = $name;
            fn bitand(self, other: $name) -> $name { $name(self.0 & other.0) }
        }

        impl std::ops::BitXor for $name {
            type Output = $name;
            fn bitxor(self, other: $name) -> $name { $name(self.0 ^ other.0) }
        }

        impl std::ops::Not for $name {
            type Output = $name;
            fn not(self) -> $name { $name(!self.0) }
        }

        /// Names joined by commas, as Ceph prints sets of flags.
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                for (i, name) in self.names().enumerate() {
                    if i > 0 { f.write_str(",")?; }
                    f.write_str(name)?;
                }
                Ok(())
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({:#x}: {self})", stringify!($name), self.0)
            }
        }

        impl $crate::codec::Encode for $name {
            fn encode(&self, e: &mut $crate::codec::Encoder) { e.$inner(self.0); }
        }

        impl $crate::codec::Decode for $name {
            const MIN_LEN: usize = size_of::<$inner>();
            fn decode(d: &mut $crate::codec::Decoder) -> $crate::codec::Result<Self> {
                Ok($name(d.$inner()?))
            }
        }
    };
}

pub(crate) use named_bits;
