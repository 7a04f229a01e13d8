//! Plans runs of a decoder without making them, to predict the rates of text generation.

use super::super::cache::{Cache, grown, padded_to};
use super::super::error::GenerateError;
use super::Decoder;
use anabranch_planning::{Constraints, Planned, PlatformFile};

impl Decoder {
    /// Plans a run of `tokens` tokens behind a cache that holds `held`, on the devices of `platform` or those of the
    /// session. The cache lies where `home` keeps it, else where the predicted time is shortest; returned, too. Forgets
    /// all tokens.
    ///
    /// # Errors
    /// If there is no plan, or no memory for an empty cache of this size.
    pub(crate) fn forecast(
        &mut self,
        held: usize,
        tokens: usize,
        platform: Option<&PlatformFile>,
        home: Option<&Constraints>,
    ) -> Result<(Planned, Constraints), GenerateError> {
        self.reset();
        let (size, padding) = match self.cache {
            Cache::Buffer(_) => (grown(0, held + tokens, self.context), 0),
            Cache::Padded(_) if tokens == 1 && held > 0 => {
                let capacity = padded_to(held, self.context);
                (capacity, capacity - held)
            }
            _ => (held, 0),
        };
        if let Cache::Buffer(capacity) = &mut self.cache {
            *capacity = size;
        }
        let sized = if let Cache::Fixed(_) = self.cache { Ok(()) } else { self.resize_cache(size) };
        self.held = vec![0; held];
        let planned = sized.and_then(|()| {
            let inputs = self.inputs(&vec![0; tokens], padding)?;
            match home {
                Some(home) => Ok((self.model.forecast_under(&inputs, platform, home)?, home.clone())),
                // A padded cache changes between runs, and stays on the host.
                None => Ok(self.model.forecast(&inputs, platform, !matches!(self.cache, Cache::Padded(_)))?),
            }
        });
        self.reset();
        planned
    }
}
