//! Regions of images resized to one size (He et al. 2017, "Mask R-CNN", section 3). Each output is the mean or the
//! greatest of some points in its part of the region, and each point is a weighted sum of the four elements around it.

use super::{Builder, Entry, Fault, Operator, View, domain_of, gather};
use crate::steps::RegionSettings;
use anabranch_kernels::DType;
use anabranch_kernels::op::{Binary, Domain, Unary};

pub(super) const TABLE: &[Entry] = &[("RoiAlign", align)];

/// For one axis of all regions and outputs: the two elements around a point, and their weights.
struct Around {
    places: [View; 2],
    weights: [View; 2],
}

fn align(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = operator.float_input(0)?;
    let (regions, images) = (operator.typed(1, x.dtype())?, operator.typed(2, DType::I64)?);
    let (&[batch, channels, height, width], &[count, 4]) = (x.dims(), regions.dims()) else {
        return Err(Fault::invalid(format!("regions of shape {} in images of {}", regions.shape(), x.shape())));
    };
    if *images.dims() != [count] || x.elements() == 0 || height.max(width) >= 1 << 24 {
        return Err(Fault::invalid(format!("{} images for {count} regions in {}", images.shape(), x.shape())));
    }
    let how = RegionSettings::of(operator.node)?;
    if !how.is_unrolled() {
        return Err(Fault::unsupported("its points are found on the host, between two programs"));
    }
    let (size, greatest) = (how.size, how.greatest);
    let regions = builder.as_working(regions)?;
    let table = builder.as_working(x)?;
    let (domain, work) = (domain_of(table.dtype()), table.dtype());
    let table = builder.transposed(&table, &[0, 2, 3, 1])?.reshaped(vec![batch * height * width, channels])?;
    let image = images.reshaped(vec![count, 1, 1])?;
    // An index of no image becomes a position beyond all images, which is rejected; a product with the index could be a
    // valid position.
    let image = builder.map(Domain::I64, [&image], DType::I64, |[image]| {
        let is_image =
            image.with(Binary::GreaterOrEqual, 0.0).with(Binary::And, image.with(Binary::Less, batch as f64));
        is_image.select(image, batch as f64)
    })?;
    let mut along = |axis: usize, sizes: [usize; 2]| {
        (0..how.points)
            .map(|number| around(&how, builder, &regions, axis, number, sizes))
            .collect::<Result<Vec<_>, _>>()
    };
    let (all_rows, all_columns) = (along(1, [size[0], height])?, along(0, [size[1], width])?);
    let mut result: Option<View> = None;
    for (rows, columns) in all_rows.iter().flat_map(|rows| all_columns.iter().map(move |columns| (rows, columns))) {
        for corner in 0..4 {
            let (row, column) = (&rows.places[corner / 2], &columns.places[corner % 2]);
            let place = builder.map(Domain::I64, [&image, row, column], DType::I64, |[image, row, column]| {
                let row = image * height as f64 + row;
                row * width as f64 + column
            })?;
            let read = gather::chosen(builder, &table, &place, 0, vec![count, size[0], size[1], channels])?;
            let weights = [&rows.weights[corner / 2], &columns.weights[corner % 2]];
            let weight = builder.map(domain, weights, work, |[row, column]| row * column)?;
            let weight = weight.reshaped(vec![count, size[0], size[1], 1])?;
            result = Some(match &result {
                None => builder.map(domain, [&read, &weight], work, |[x, weight]| x * weight)?,
                Some(sum) => builder.map(domain, [sum, &read, &weight], work, |[sum, x, weight]| {
                    let part = x * weight;
                    if greatest { sum.with(Binary::Max, part) } else { sum + part }
                })?,
            });
        }
    }
    let sum = result.ok_or_else(|| Fault::invalid("no point"))?;
    let share = if greatest { 1.0 } else { 1.0 / (how.points * how.points) as f64 };
    let mean = builder.map(domain, [&sum], work, |[x]| x * share)?;
    let moved = builder.transposed(&mean, &[0, 3, 1, 2])?;
    Ok(vec![builder.cast(&moved, x.dtype())?])
}

/// Returns the elements around the point of this number in each of `outputs` parts of the regions, along an axis (0 for
/// columns, 1 for rows) of `size` elements.
fn around(
    how: &RegionSettings,
    builder: &mut Builder,
    regions: &View,
    axis: usize,
    number: usize,
    [outputs, size]: [usize; 2],
) -> Result<Around, Fault> {
    let along = if axis == 1 { 1 } else { 2 };
    let (domain, work) = (domain_of(regions.dtype()), regions.dtype());
    let first = builder.part(regions, 1, axis, 1)?.reshaped(vec![regions.dims()[0], 1, 1])?;
    let last = builder.part(regions, 1, axis + 2, 1)?.reshaped(first.dims())?;
    let output = builder.indices(work, outputs, along, 3)?;
    let offset = if how.half_pixel { 0.5 } else { 0.0 };
    let within = (number as f64 + 0.5) / how.points as f64;
    let at = builder.map(domain, [&first, &last, &output], work, |[first, last, output]| {
        let start = first * how.scale - offset;
        let length = last * how.scale - offset - start;
        let length = if how.half_pixel { length } else { length.with(Binary::Max, 1.0) };
        start + (output + within) * (length / outputs as f64)
    })?;
    let (size, end) = (size as f64, size as f64 - 1.0);
    let place = |builder: &mut Builder, step: f64| {
        builder.map(domain, [&at], work, |[at]| {
            let low = at.with(Binary::Max, 0.0).apply(Unary::Floor).with(Binary::Min, end);
            (low + step).with(Binary::Min, end)
        })
    };
    let weight = |builder: &mut Builder, second: bool| {
        builder.map(domain, [&at], work, |[at]| {
            let inside = at.with(Binary::GreaterOrEqual, -1.0).with(Binary::And, at.with(Binary::LessOrEqual, size));
            let at = at.with(Binary::Max, 0.0).with(Binary::Min, end);
            let fraction = at - at.apply(Unary::Floor);
            let weight = if second { fraction } else { fraction * -1.0 + 1.0 };
            inside.select(weight, 0.0)
        })
    };
    let places = [place(builder, 0.0)?, place(builder, 1.0)?];
    let weights = [weight(builder, false)?, weight(builder, true)?];
    Ok(Around { places, weights })
}
