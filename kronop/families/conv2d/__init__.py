"""Public names, for type checkers; kronop imports them at their first use."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kronop.families.conv2d.arguments import Conv2dArguments as Conv2dArguments
    from kronop.families.conv2d.description import Conv2dDescription as Conv2dDescription
    from kronop.families.conv2d.operation import Conv2dOperation as Conv2dOperation
    from kronop.families.conv2d.public_api import conv as conv
    from kronop.families.conv2d.vocabulary import (
        StridedDgradIdentitySwizzle1 as StridedDgradIdentitySwizzle1,
    )
    from kronop.families.conv2d.vocabulary import (
        StridedDgradIdentitySwizzle4 as StridedDgradIdentitySwizzle4,
    )
    from kronop.families.conv2d.vocabulary import Tensor4DCoord as Tensor4DCoord
    from kronop.families.conv2d.vocabulary import TensorC32RSK32 as TensorC32RSK32
    from kronop.families.conv2d.vocabulary import TensorLayout as TensorLayout
    from kronop.families.conv2d.vocabulary import TensorNC32HW32 as TensorNC32HW32
    from kronop.families.conv2d.vocabulary import TensorNHWC as TensorNHWC
